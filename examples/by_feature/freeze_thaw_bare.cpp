// An encoder that is frozen for the first third of the training, and thawed then.

#include "freeze_thaw.hpp"

int main(int argc, char** argv) {
  const auto flags = freeze_thaw::read_flags(argc, argv, example::Twin::kBare);
  torch::manual_seed(flags.seed);
  freeze_thaw::Net net;
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2));

  example::Record record(flags);
  freeze_thaw::set_trainable(*net->encoder, false);
  for (std::int64_t step = 0; step < flags.steps; ++step) {
    if (step == flags.steps / 3) freeze_thaw::set_trainable(*net->encoder, true);
    const auto batch = freeze_thaw::draw(flags, step, 0, 1);
    auto loss = torch::mse_loss(net->forward(batch.data), batch.target);
    example::require_finite(loss, step);
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    record.loss(step, loss.item<double>());
  }
  record.save(net->parameters());
}
