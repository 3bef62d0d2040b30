// Soft actor-critic on any number of ranks: two critics at every step, the policy and its temperature at every second
// with windows of their own, targets that follow the critics slowly, after steps that were taken.

#include "sac.hpp"

#include <accel/accelerator.hpp>

int main(int argc, char** argv) {
  const auto flags = sac::read_flags(argc, argv, example::Twin::kAccel);
  accel::Accelerator accelerator({.gradient_accumulation_steps = flags.gradient_accumulation_steps});
  torch::manual_seed(flags.seed);
  sac::Policy policy;
  sac::Critics critics;
  auto log_alpha = torch::zeros({1}, torch::dtype(torch::kDouble).requires_grad(true));
  const auto alpha = accel::parameters({{"log_alpha", log_alpha}});
  accelerator.prepare(policy, critics, alpha);
  auto policy_optimizer = accelerator.prepare(torch::optim::Adam(policy->parameters(), 2e-3));
  auto critic_optimizer = accelerator.prepare(torch::optim::Adam(critics->parameters(), 2e-3));
  auto alpha_optimizer = accelerator.prepare(torch::optim::Adam({log_alpha}, 2e-3));
  auto target = sac::target_of(critics);
  sac::Experience experience(flags);

  example::Record record(flags, accelerator.process_index(), accelerator.num_processes());
  for (std::int64_t step = 0; step < flags.steps; ++step) {
    experience.play(policy);
    const auto micro = accelerator.accumulate(critics, {.last = step + 1 == flags.steps});
    const auto batch =
        accelerator.to_device(experience.draw(flags, step, accelerator.process_index(), accelerator.num_processes()));
    const auto critic_loss = sac::critic_loss(critics, target, policy, log_alpha, batch);
    example::require_finite(critic_loss, step);
    critic_optimizer.zero_grad();  // after a step only: what an open window holds stays
    accelerator.backward(critic_loss, {.inputs = {critics}});
    if (critic_optimizer.step() == accel::Stepped::kYes) accel::polyak_update(target, critics, sac::kTau);

    if (step % 2 == 1) {
      const auto policy_micro = accelerator.accumulate(policy, alpha, {.last = step + 2 >= flags.steps});
      const auto losses = sac::policy_losses(policy, critics, log_alpha, batch);
      example::require_finite(losses.policy, step);
      policy_optimizer.zero_grad();
      alpha_optimizer.zero_grad();
      accelerator.backward({losses.policy, losses.temperature}, {.inputs = {policy, alpha}});
      policy_optimizer.step();
      alpha_optimizer.step();
    }
    record.loss(step, accelerator.mean(critic_loss.item<double>()), "critic loss");
    record.loss(step, experience.mean_return(), "return");
  }
  auto weights = policy->parameters();
  for (const auto& models : {critics->parameters(), target->parameters(), {log_alpha}})
    weights.insert(weights.end(), models.begin(), models.end());
  record.save(weights);
}
