// A language model that carries its memory along the text, with gradients cut at each step and clipped: on any number
// of ranks, each of which reads rows of its own. All of them stop together.

#include "lstm_lm.hpp"

#include <accel/accelerator.hpp>

int main(int argc, char** argv) {
  const auto options = lstm_lm::read_options(argc, argv, example::Twin::kAccel);
  const auto& flags = options.flags;
  accel::Accelerator accelerator({.gradient_accumulation_steps = flags.gradient_accumulation_steps});
  const lstm_lm::Text text(options);
  torch::manual_seed(flags.seed);
  lstm_lm::Net net(text.symbols());
  torch::optim::AdamW adamw(net->parameters(), torch::optim::AdamWOptions(5e-3));
  accelerator.prepare(net);
  auto optimizer = accelerator.prepare(adamw);

  example::Record record(flags, accelerator.process_index(), accelerator.num_processes());
  lstm_lm::Memory memory;
  for (std::int64_t step = 0; step < flags.steps; ++step) {
    const auto micro = accelerator.accumulate(net, {.last = step + 1 == flags.steps});
    const auto batch =
        accelerator.to_device(text.next(flags, step, accelerator.process_index(), accelerator.num_processes()));
    auto loss = lstm_lm::loss_of(net->forward(batch.data, memory), batch.target);
    example::require_finite(loss, step);
    accelerator.backward(loss);
    if (micro.closes_window()) torch::nn::utils::clip_grad_norm_(net->parameters(), 1.0);
    optimizer.step();
    optimizer.zero_grad();
    const double mean = accelerator.mean(loss.item<double>());
    record.loss(step, mean);
    if (micro.closes_window() && mean < options.target) break;  // the same mean on all ranks
  }
  accelerator.on_main_process([&] { std::cout << text.written(net, "And God said", 300, flags.seed) << std::endl; });
  record.save(net->parameters());
}
