// Proximal policy optimisation with a recurrent policy. An update ends early where the policy has moved far enough.
// --steps are updates, --batch-size is the number of environments.

#include "ppo.hpp"

int main(int argc, char** argv) {
  const auto flags = ppo::read_flags(argc, argv, example::Twin::kBare);
  torch::manual_seed(flags.seed);
  ppo::Policy policy;
  policy->to(torch::kDouble);
  torch::optim::Adam optimizer(policy->parameters(), 3e-3);
  accel::RunningStatistics statistics({ppo::kSeen});
  ppo::Player player(flags, 0, 1);

  example::Record record(flags);
  for (std::int64_t step = 0; step < flags.steps; ++step) {
    auto rollout = player.play(policy, statistics, step);
    statistics.merge(accel::Group());
    rollout.normalize_advantages(rollout.advantages.mean(), rollout.advantages.square().mean());

    double sum = 0.0;
    std::size_t done = 0;
    const auto firsts = ppo::mini_batches(flags, step);
    while (done < firsts.size()) {
      const auto loss = ppo::loss_of(policy, rollout, firsts[done++]);
      example::require_finite(loss.total, step);
      loss.total.backward();
      optimizer.step();
      optimizer.zero_grad();
      sum += loss.total.item<double>();
      if (loss.moved > ppo::kFurthest) break;
    }
    record.loss(step, sum / static_cast<double>(done));
    record.loss(step, static_cast<double>(done), "mini-batches");
    record.loss(step, player.episode_length(), "episode length");
  }
  record.save(policy->parameters());
}
