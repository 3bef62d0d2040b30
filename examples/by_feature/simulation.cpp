// A simulation that owns MPI teaches a network on the way: half of the ranks train, the others simulate. accel works on
// the communicator of the first half; it touches nothing outside it, and MPI is the program's to end.

#include "simulation.hpp"

#include <accel/accelerator.hpp>
#include <accel/interop.hpp>

namespace {

void train(const example::Flags& flags, const simulation::Roles& roles, torch::nn::Sequential& net) {
  accel::Accelerator accelerator({.gradient_accumulation_steps = flags.gradient_accumulation_steps,
                                  .group = accel::interop::group_from_mpi(roles.part)});
  torch::optim::AdamW adamw(net->parameters(), torch::optim::AdamWOptions(3e-3));
  accelerator.prepare(net);
  auto optimizer = accelerator.prepare(adamw);

  example::Record record(flags, accelerator.process_index(), accelerator.num_processes());
  for (std::int64_t step = 0; step < flags.steps; ++step) {
    const auto micro = accelerator.accumulate(net, {.last = step + 1 == flags.steps});
    const auto [before, after] = simulation::next_fields(flags, roles, step);
    auto loss = torch::mse_loss(net->forward(accelerator.to_device(before)), accelerator.to_device(after)) * 100.0;
    example::require_finite(loss, step);
    accelerator.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    record.loss(step, accelerator.mean(loss.item<double>()));
  }
  record.save(net->parameters());
  net->to(torch::kCPU);  // where the simulation wants it
}

void run(const example::Flags& flags) {
  simulation::Roles roles(simulation::trainers_among(simulation::ranks_of_job()));
  auto net = simulation::make_surrogate(flags);
  if (roles.trains)
    train(flags, roles, net);
  else
    for (std::int64_t step = 0; step < flags.steps; ++step) simulation::simulation_step(flags, roles, step);
  simulation::send_weights(net);
  simulation::try_surrogate(flags, roles, net);
  roles.end();
}

}  // namespace

int main(int argc, char** argv) {
  const auto [flags, level] = simulation::read_options(argc, argv, example::Twin::kAccel);
  simulation::init_mpi(level);
  try {
    run(flags);
  } catch (const std::exception& error) {
    simulation::end_job(error);
  }
  MPI_Finalize();
}
