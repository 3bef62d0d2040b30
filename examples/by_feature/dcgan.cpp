// A generator of handwritten digits and a discriminator: two networks, two optimizers, three backwards a step, on any
// number of ranks. One guard is the micro-batch of both networks, and `.inputs` says whose gradients a loss is for.

#include "dcgan.hpp"

#include <accel/accelerator.hpp>

int main(int argc, char** argv) {
  const auto flags = dcgan::read_flags(argc, argv, example::Twin::kAccel);
  accel::Accelerator accelerator({.gradient_accumulation_steps = flags.gradient_accumulation_steps});
  const int rank = accelerator.process_index();
  const int ranks = accelerator.num_processes();
  torch::manual_seed(flags.seed);
  dcgan::Generator generator;
  dcgan::Discriminator discriminator;
  torch::optim::Adam g_adam(generator->parameters(), dcgan::adam_options());
  torch::optim::Adam d_adam(discriminator->parameters(), dcgan::adam_options());
  accelerator.prepare(generator, discriminator);
  auto [g_optimizer, d_optimizer, loader] = accelerator.prepare(g_adam, d_adam, dcgan::make_loader(flags, ranks));

  example::Record record(flags, accelerator.process_index(), accelerator.num_processes());
  if (accelerator.is_main_process()) dcgan::show(generator, flags);
  for (std::int64_t step = 0; step < flags.steps;) {
    for (auto& batch : loader) {
      const auto micro = accelerator.accumulate(generator, discriminator, {.last = step + 1 == flags.steps});
      const auto real = dcgan::images_of(batch, flags, step, rank);
      const auto fake = generator->forward(accelerator.to_device(dcgan::draw_noise(flags, step, rank, ranks)));

      d_optimizer.zero_grad();  // plain LibTorch leaves gradients of the generator's loss here
      const auto on_real = dcgan::loss_of(discriminator->forward(real), 0.9);  // not 1: keeps it from growing too sure
      example::require_finite(on_real, step);
      accelerator.backward(on_real, {.inputs = {discriminator}, .more = true});
      const auto on_fake = dcgan::loss_of(discriminator->forward(fake.detach()), 0.0);
      accelerator.backward(on_fake, {.inputs = {discriminator}});
      d_optimizer.step();

      g_optimizer.zero_grad();
      const auto g_loss = dcgan::loss_of(discriminator->forward(fake), 1.0);
      accelerator.backward(g_loss, {.inputs = {generator}});
      g_optimizer.step();

      record.loss(step, accelerator.mean((on_real + on_fake).item<double>()), "discriminator");
      record.loss(step, accelerator.mean(g_loss.item<double>()), "generator");
      if (++step == flags.steps) break;
    }
  }
  if (accelerator.is_main_process()) dcgan::show(generator, flags);
  auto weights = generator->parameters();
  for (const auto& weight : discriminator->parameters()) weights.push_back(weight);
  record.save(weights);
}
