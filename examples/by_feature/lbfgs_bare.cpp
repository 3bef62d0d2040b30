// A least-squares fit by L-BFGS, whose line searches evaluate the loss several times in a step.

#include "lbfgs.hpp"

int main(int argc, char** argv) {
  const auto flags = lbfgs::read_flags(argc, argv, example::Twin::kBare);
  torch::manual_seed(flags.seed);
  lbfgs::Signal signal;
  torch::optim::LBFGS optimizer(signal->parameters(), lbfgs::options());

  example::Record record(flags);
  std::int64_t evaluations = 0;
  for (std::int64_t step = 0; step < flags.steps; ++step) {
    const auto batch = lbfgs::draw(flags, step, 0, 1);
    const auto loss = optimizer.step([&] {
      optimizer.zero_grad();
      auto evaluated = torch::mse_loss(signal->forward(batch.data), batch.target);
      example::require_finite(evaluated, step);
      evaluated.backward();
      ++evaluations;
      return evaluated;
    });
    record.loss(step, loss.item<double>());
  }
  lbfgs::print(signal, evaluations);
  record.save(signal->parameters());
}
