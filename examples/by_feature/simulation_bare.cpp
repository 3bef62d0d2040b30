// A simulation that owns MPI teaches a network on the way: rank 0 trains, the others simulate.

#include "simulation.hpp"

namespace {

void train(const example::Flags& flags, const simulation::Roles& roles, torch::nn::Sequential& net) {
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(3e-3));

  example::Record record(flags);
  for (std::int64_t step = 0; step < flags.steps; ++step) {
    const auto [before, after] = simulation::next_fields(flags, roles, step);
    auto loss = torch::mse_loss(net->forward(before), after) * 100.0;
    example::require_finite(loss, step);
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    record.loss(step, loss.item<double>());
  }
  record.save(net->parameters());
}

void run(const example::Flags& flags) {
  simulation::Roles roles(1);
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
  const auto [flags, level] = simulation::read_options(argc, argv, example::Twin::kBare);
  simulation::init_mpi(level);
  try {
    run(flags);
  } catch (const std::exception& error) {
    simulation::end_job(error);
  }
  MPI_Finalize();
}
