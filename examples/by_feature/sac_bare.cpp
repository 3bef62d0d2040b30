// Soft actor-critic: two critics at every step, the policy and its temperature at every second, targets that follow
// the critics slowly.

#include "sac.hpp"

int main(int argc, char** argv) {
  const auto flags = sac::read_flags(argc, argv, example::Twin::kBare);
  torch::manual_seed(flags.seed);
  sac::Policy policy;
  sac::Critics critics;
  auto log_alpha = torch::zeros({1}, torch::dtype(torch::kDouble).requires_grad(true));
  torch::optim::Adam policy_optimizer(policy->parameters(), 2e-3);
  torch::optim::Adam critic_optimizer(critics->parameters(), 2e-3);
  torch::optim::Adam alpha_optimizer({log_alpha}, 2e-3);
  auto target = sac::target_of(critics);
  sac::Experience experience(flags);

  example::Record record(flags);
  for (std::int64_t step = 0; step < flags.steps; ++step) {
    experience.play(policy);
    const auto batch = experience.draw(flags, step, 0, 1);
    const auto critic_loss = sac::critic_loss(critics, target, policy, log_alpha, batch);
    example::require_finite(critic_loss, step);
    critic_optimizer.zero_grad();  // of what the policy's loss left there, too
    critic_loss.backward();
    critic_optimizer.step();
    accel::polyak_update(target, critics, sac::kTau);

    if (step % 2 == 1) {
      const auto losses = sac::policy_losses(policy, critics, log_alpha, batch);
      example::require_finite(losses.policy, step);
      policy_optimizer.zero_grad();
      alpha_optimizer.zero_grad();
      torch::autograd::backward({losses.policy, losses.temperature});
      policy_optimizer.step();
      alpha_optimizer.step();
    }
    record.loss(step, critic_loss.item<double>(), "critic loss");
    record.loss(step, experience.mean_return(), "return");
  }
  auto weights = policy->parameters();
  for (const auto& models : {critics->parameters(), target->parameters(), {log_alpha}})
    weights.insert(weights.end(), models.begin(), models.end());
  record.save(weights);
}
