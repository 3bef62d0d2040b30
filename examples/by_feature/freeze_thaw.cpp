// An encoder that is frozen for the first third of the training, and thawed then: on any number of ranks. What changes
// in which parameters train is noticed by itself, and no frozen parameter is sent.

#include "freeze_thaw.hpp"

#include <accel/accelerator.hpp>

int main(int argc, char** argv) {
  const auto flags = freeze_thaw::read_flags(argc, argv, example::Twin::kAccel);
  accel::Accelerator accelerator({.gradient_accumulation_steps = flags.gradient_accumulation_steps});
  torch::manual_seed(flags.seed);
  freeze_thaw::Net net;
  torch::optim::AdamW adamw(net->parameters(), torch::optim::AdamWOptions(1e-2));
  accelerator.prepare(net);
  auto optimizer = accelerator.prepare(adamw);

  example::Record record(flags, accelerator.process_index(), accelerator.num_processes());
  freeze_thaw::set_trainable(*net->encoder, false);
  for (std::int64_t step = 0; step < flags.steps; ++step) {
    if (step == flags.steps / 3) freeze_thaw::set_trainable(*net->encoder, true);
    const auto micro = accelerator.accumulate(net, {.last = step + 1 == flags.steps});
    const auto batch =
        accelerator.to_device(freeze_thaw::draw(flags, step, accelerator.process_index(), accelerator.num_processes()));
    auto loss = torch::mse_loss(net->forward(batch.data), batch.target);
    example::require_finite(loss, step);
    accelerator.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    record.loss(step, accelerator.mean(loss.item<double>()));
  }
  record.save(net->parameters());
}
