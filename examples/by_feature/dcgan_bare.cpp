// A generator of handwritten digits and a discriminator: two networks, two optimizers, three backwards a step.

#include "dcgan.hpp"

int main(int argc, char** argv) {
  const auto flags = dcgan::read_flags(argc, argv, example::Twin::kBare);
  torch::manual_seed(flags.seed);
  dcgan::Generator generator;
  dcgan::Discriminator discriminator;
  torch::optim::Adam g_optimizer(generator->parameters(), dcgan::adam_options());
  torch::optim::Adam d_optimizer(discriminator->parameters(), dcgan::adam_options());
  const auto loader = dcgan::make_loader(flags, 1);

  example::Record record(flags);
  dcgan::show(generator, flags);
  for (std::int64_t step = 0; step < flags.steps;) {
    for (auto& batch : loader) {
      const auto real = dcgan::images_of(batch, flags, step, 0);
      const auto fake = generator->forward(dcgan::draw_noise(flags, step, 0, 1));

      d_optimizer.zero_grad();  // plain LibTorch leaves gradients of the generator's loss here
      const auto on_real = dcgan::loss_of(discriminator->forward(real), 0.9);  // not 1: keeps it from growing too sure
      example::require_finite(on_real, step);
      on_real.backward();
      const auto on_fake = dcgan::loss_of(discriminator->forward(fake.detach()), 0.0);
      on_fake.backward();
      d_optimizer.step();

      g_optimizer.zero_grad();
      const auto g_loss = dcgan::loss_of(discriminator->forward(fake), 1.0);
      g_loss.backward();
      g_optimizer.step();

      record.loss(step, (on_real + on_fake).item<double>(), "discriminator");
      record.loss(step, g_loss.item<double>(), "generator");
      if (++step == flags.steps) break;
    }
  }
  dcgan::show(generator, flags);
  auto weights = generator->parameters();
  for (const auto& weight : discriminator->parameters()) weights.push_back(weight);
  record.save(weights);
}
