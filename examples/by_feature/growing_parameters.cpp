// A model whose tensors are replaced by larger and smaller ones while it trains, as in Gaussian splatting: on any
// number of ranks. Gradients are equal on all ranks after the boundary, so all decide alike; refresh takes the new
// tensors in.

#include "growing_parameters.hpp"

#include <accel/accelerator.hpp>

template <>
struct accel::ModelTraits<growing_parameters::Splats> {
  static std::vector<accel::NamedTensor> parameters(const growing_parameters::Splats& splats) {
    return {{"positions", splats.positions}, {"log_scales", splats.log_scales}, {"colors", splats.colors}};
  }
};

int main(int argc, char** argv) {
  const auto options = growing_parameters::read_options(argc, argv, example::Twin::kAccel);
  const auto& flags = options.flags;
  accel::Accelerator accelerator({.gradient_accumulation_steps = flags.gradient_accumulation_steps});
  torch::manual_seed(flags.seed);
  growing_parameters::Splats splats(16);
  torch::optim::Adam adam(growing_parameters::parameter_groups(splats));
  accelerator.prepare(splats);
  auto optimizer = accelerator.prepare(adam);

  example::Record record(flags, accelerator.process_index(), accelerator.num_processes());
  growing_parameters::Growth growth(options);
  for (std::int64_t step = 0; step < flags.steps; ++step) {
    const auto micro = accelerator.accumulate(splats, {.last = step + 1 == flags.steps});
    const auto batch = accelerator.to_device(
        growing_parameters::draw(flags, step, accelerator.process_index(), accelerator.num_processes()));
    auto loss = torch::mse_loss(splats.forward(batch.data), batch.target);
    example::require_finite(loss, step);
    accelerator.backward(loss);
    if (micro.closes_window()) growth.watch(splats);
    optimizer.step();
    optimizer.zero_grad();
    if (micro.closes_window() && growth.due()) {
      accelerator.print(growth.grow(splats, optimizer.torch()));
      accelerator.refresh(splats);
    }
    record.loss(step, accelerator.mean(loss.item<double>()));
  }
  record.save(splats.parameters());
}
