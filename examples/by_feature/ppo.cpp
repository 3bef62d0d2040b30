// Proximal policy optimisation with a recurrent policy, on any number of ranks, each with its share of the
// environments. An update ends early, on all ranks alike, where the policy has moved far enough on one of them.
// --steps are updates, --batch-size is the number of environments.

#include "ppo.hpp"

#include <accel/accelerator.hpp>

int main(int argc, char** argv) {
  const auto flags = ppo::read_flags(argc, argv, example::Twin::kAccel);
  accel::Accelerator accelerator({.gradient_accumulation_steps = flags.gradient_accumulation_steps});
  torch::manual_seed(flags.seed);
  ppo::Policy policy;
  policy->to(torch::kDouble);
  accelerator.prepare(policy);
  auto optimizer = accelerator.prepare(torch::optim::Adam(policy->parameters(), 3e-3));
  accel::RunningStatistics statistics({ppo::kSeen});
  ppo::Player player(flags, accelerator.process_index(), accelerator.num_processes());

  example::Record record(flags, accelerator.process_index(), accelerator.num_processes());
  for (std::int64_t step = 0; step < flags.steps; ++step) {
    auto rollout = player.play(policy, statistics, step);
    statistics.merge(accelerator.group());
    rollout.normalize_advantages(accelerator.mean(rollout.advantages.mean()),
                                 accelerator.mean(rollout.advantages.square().mean()));

    double sum = 0.0;
    std::size_t done = 0;
    const auto firsts = ppo::mini_batches(flags, step);
    while (done < firsts.size()) {
      const auto micro = accelerator.accumulate(policy, {.last = done + 1 == firsts.size()});
      const auto loss = ppo::loss_of(policy, rollout, firsts[done++]);
      example::require_finite(loss.total, step);
      accelerator.backward(loss.total);
      optimizer.step();
      optimizer.zero_grad();
      sum += loss.total.item<double>();
      // Ranks have environments of their own: one that broke off alone would leave the others waiting for gradients.
      if (accelerator.any(loss.moved > ppo::kFurthest)) break;
    }
    accelerator.finish_window(policy);  // where the loop left in the middle of a window
    optimizer.step();
    optimizer.zero_grad();
    record.loss(step, accelerator.mean(sum / static_cast<double>(done)));
    record.loss(step, static_cast<double>(done), "mini-batches");
    record.loss(step, accelerator.mean(player.episode_length()), "episode length");
  }
  record.save(policy->parameters());
}
