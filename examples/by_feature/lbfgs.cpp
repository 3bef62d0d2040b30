// A least-squares fit by L-BFGS, whose line searches evaluate the loss several times in a step: on any number of ranks.
// Each evaluation averages gradients and loss over the ranks, so that all line searches take the same turns.

#include "lbfgs.hpp"

#include <accel/accelerator.hpp>

int main(int argc, char** argv) {
  const auto flags = lbfgs::read_flags(argc, argv, example::Twin::kAccel);
  // A closure needs windows of one micro-batch: with another number the first step says so.
  accel::Accelerator accelerator({.gradient_accumulation_steps = flags.gradient_accumulation_steps});
  torch::manual_seed(flags.seed);
  lbfgs::Signal signal;
  torch::optim::LBFGS torch_lbfgs(signal->parameters(), lbfgs::options());
  accelerator.prepare(signal);
  auto optimizer = accelerator.prepare(torch_lbfgs);

  example::Record record(flags, accelerator.process_index(), accelerator.num_processes());
  std::int64_t evaluations = 0;
  for (std::int64_t step = 0; step < flags.steps; ++step) {
    const auto batch =
        accelerator.to_device(lbfgs::draw(flags, step, accelerator.process_index(), accelerator.num_processes()));
    const auto loss = optimizer.step([&] {  // clears the gradients before each evaluation; gives the mean of all ranks
      auto evaluated = torch::mse_loss(signal->forward(batch.data), batch.target);
      example::require_finite(evaluated, step);
      accelerator.backward(evaluated);
      ++evaluations;
      return evaluated;
    });
    record.loss(step, loss.item<double>());
  }
  const auto mine = static_cast<double>(evaluations);
  if (accelerator.any(mine != accelerator.mean(mine)))
    throw std::runtime_error("expected as many evaluations on all ranks, found other line searches on some");
  if (accelerator.is_main_process()) lbfgs::print(signal, evaluations);
  record.save(signal->parameters());
}
