// A language model that carries its memory along the text, with gradients cut at each step and clipped.

#include "lstm_lm.hpp"

int main(int argc, char** argv) {
  const auto options = lstm_lm::read_options(argc, argv, example::Twin::kBare);
  const auto& flags = options.flags;
  const lstm_lm::Text text(options);
  torch::manual_seed(flags.seed);
  lstm_lm::Net net(text.symbols());
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(5e-3));

  example::Record record(flags);
  lstm_lm::Memory memory;
  for (std::int64_t step = 0; step < flags.steps; ++step) {
    const auto batch = text.next(flags, step, 0, 1);
    auto loss = lstm_lm::loss_of(net->forward(batch.data, memory), batch.target);
    example::require_finite(loss, step);
    loss.backward();
    torch::nn::utils::clip_grad_norm_(net->parameters(), 1.0);
    optimizer.step();
    optimizer.zero_grad();
    const double mean = loss.item<double>();
    record.loss(step, mean);
    if (mean < options.target) break;
  }
  std::cout << text.written(net, "And God said", 300, flags.seed) << std::endl;
  record.save(net->parameters());
}
