// Gradient accumulation by hand: plain LibTorch, one process. The program divides the loss, counts micro-batches and
// remembers the last one. Compare with 02_accelerator.cpp.

#include "digits_net.hpp"

#include <cstdio>

namespace {

double test_accuracy(digits::Net& net, const digits::Loader& loader) {
  const torch::NoGradGuard no_grad;
  net->eval();
  std::int64_t correct = 0;
  for (auto& batch : loader) correct += digits::correct_in(net, batch).item<std::int64_t>();
  return static_cast<double>(correct) / static_cast<double>(loader.samples());
}

}  // namespace

int main(int argc, char** argv) {
  const digits::Flags flags = digits::read_flags(argc, argv, "Trains a digit reader, accumulating by hand.");
  const std::int64_t gradient_accumulation_steps = flags.gradient_accumulation_steps;

  torch::manual_seed(flags.seed);
  digits::Net net;
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(flags.learning_rate));
  const digits::Loader loader = digits::train_loader(flags);
  const digits::Loader test_loader = digits::test_loader();
  digits::LinearDecay scheduler(optimizer, digits::total_steps(flags, loader.size(), 1));

  for (std::int64_t epoch = 0; epoch < flags.epochs; ++epoch) {
    net->train();
    std::int64_t index = 0;
    for (auto& batch : loader) {
      // Right for full windows. A short one at the end of an epoch should be divided by what it holds, which has to be
      // known when it begins.
      auto loss = digits::loss_of(net, batch) / gradient_accumulation_steps;
      loss.backward();
      ++index;
      if (index % gradient_accumulation_steps == 0 || index == static_cast<std::int64_t>(loader.size())) {
        optimizer.step();
        scheduler.step();
        optimizer.zero_grad();
      }
    }
    std::printf("epoch %lld  test accuracy %.4f\n", static_cast<long long>(epoch + 1), test_accuracy(net, test_loader));
    std::fflush(stdout);
  }
  if (!flags.save.empty()) torch::save(net, flags.save);
}
