// A model whose tensors are replaced by larger and smaller ones while it trains, as in Gaussian splatting.

#include "growing_parameters.hpp"

int main(int argc, char** argv) {
  const auto options = growing_parameters::read_options(argc, argv, example::Twin::kBare);
  const auto& flags = options.flags;
  torch::manual_seed(flags.seed);
  growing_parameters::Splats splats(16);
  torch::optim::Adam optimizer(growing_parameters::parameter_groups(splats));

  example::Record record(flags);
  growing_parameters::Growth growth(options);
  for (std::int64_t step = 0; step < flags.steps; ++step) {
    const auto batch = growing_parameters::draw(flags, step, 0, 1);
    auto loss = torch::mse_loss(splats.forward(batch.data), batch.target);
    example::require_finite(loss, step);
    loss.backward();
    growth.watch(splats);
    optimizer.step();
    optimizer.zero_grad();
    if (growth.due()) std::cout << growth.grow(splats, optimizer) << std::endl;
    record.loss(step, loss.item<double>());
  }
  record.save(splats.parameters());
}
