// The same training with accel. What changed in the loop against 01_by_hand.cpp: `prepare`, the guard, and
// `accelerator.backward`; the division and the counting are gone. Runs as it is on one process or on many:
//   accel launch -n 2 02_accelerator

#include "digits_net.hpp"
#include "training_report.hpp"

#include <accel/accelerator.hpp>

namespace {

// Each test digit is on one rank; the ranks add up what they counted.
double test_accuracy(digits::Net& net, const digits::Loader& loader, const accel::Accelerator& accelerator) {
  const torch::NoGradGuard no_grad;
  net->eval();
  auto correct = torch::zeros({}, torch::dtype(torch::kLong).device(accelerator.device()));
  for (auto& batch : loader) correct += digits::correct_in(net, batch);
  accel::all_reduce(correct, accel::ReduceOp::kSum, accelerator.group());
  return correct.item<double>() / static_cast<double>(loader.samples());
}

}  // namespace

int main(int argc, char** argv) {
  const digits::Flags flags =
      digits::read_flags(argc, argv, "Trains a digit reader with accel, on any number of ranks.");
  accel::Accelerator accelerator({.gradient_accumulation_steps = flags.gradient_accumulation_steps});

  torch::manual_seed(flags.seed);
  digits::Net net;
  torch::optim::AdamW adamw(net->parameters(), torch::optim::AdamWOptions(flags.learning_rate));
  const digits::Loader train_loader = digits::train_loader(flags);
  digits::LinearDecay schedule(adamw, digits::total_steps(flags, train_loader.size(), accelerator.num_processes()));
  auto [model, optimizer, loader, scheduler] = accelerator.prepare(net, adamw, train_loader, schedule);
  const digits::Loader test_loader = accelerator.prepare(digits::test_loader());

  digits::TrainingReport report(accelerator);
  for (std::int64_t epoch = 0; epoch < flags.epochs; ++epoch) {
    model->train();
    report.start();
    for (auto& batch : loader) {
      const auto micro = accelerator.accumulate(model);
      auto loss = digits::loss_of(model, batch);
      accelerator.backward(loss);
      optimizer.step();
      scheduler.step();
      optimizer.zero_grad();
      report.add(micro, batch.target.size(0));
    }
    report.stop();
    const double accuracy = test_accuracy(model, test_loader, accelerator);
    if (accelerator.is_main_process())
      std::printf("epoch %lld  test accuracy %.4f\n", static_cast<long long>(epoch + 1), accuracy);
  }
  report.print();
  if (!flags.save.empty() && accelerator.is_main_process()) torch::save(model, flags.save);
}
