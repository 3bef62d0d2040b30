#pragma once

// A cart-pole whose velocities are hidden, and a recurrent policy for it: environments, rollouts, the loss of PPO. In
// float64: a rounding that flipped an action would make runs on other numbers of ranks differ for good.

#include "common.hpp"

#include <accel/running_statistics.hpp>

#include <array>
#include <random>

namespace ppo {

constexpr std::int64_t kSeen = 2;      // of the environment's state: the cart's position and the pole's angle
constexpr std::int64_t kHidden = 32;   // what the policy remembers
constexpr std::int64_t kRollout = 64;  // steps of an environment between two updates
constexpr std::int64_t kChunk = 16;    // steps through which gradients flow; all environments' are one mini-batch
constexpr std::int64_t kEpochs = 4;
constexpr double kFurthest = 0.03;  // how far the policy may move in an update, for any environment

/// Remembers with a GRU, since one look tells no velocity.
struct PolicyImpl : torch::nn::Module {
  struct Output {
    torch::Tensor log_probabilities;
    torch::Tensor values;
    torch::Tensor hidden;
  };

  /// @param begins  ones where an episode begins: nothing is remembered of the one before
  Output forward(const torch::Tensor& observations, const torch::Tensor& hidden, const torch::Tensor& begins) {
    const auto kept = hidden * (1.0 - begins).unsqueeze(-1);
    const auto next = memory->forward(torch::tanh(encoder->forward(observations)), kept);
    return {torch::log_softmax(actor->forward(next), -1), critic->forward(next).squeeze(-1), next};
  }

  torch::nn::Linear encoder = register_module("encoder", torch::nn::Linear(kSeen, kHidden));
  torch::nn::GRUCell memory = register_module("memory", torch::nn::GRUCell(kHidden, kHidden));
  torch::nn::Linear actor = register_module("actor", torch::nn::Linear(kHidden, 2));
  torch::nn::Linear critic = register_module("critic", torch::nn::Linear(kHidden, 1));
};
TORCH_MODULE(Policy);

/// Barto, Sutton and Anderson, 1983. Its generator depends on its index among the environments of all ranks, so that
/// it behaves alike whichever rank runs it.
class CartPole {
 public:
  CartPole(std::uint64_t seed, std::int64_t index) : generator_(seed * 1'000'003 + static_cast<std::uint64_t>(index)) {
    reset();
  }

  double uniform() { return std::uniform_real_distribution<double>()(generator_); }
  [[nodiscard]] double position() const { return state_[0]; }
  [[nodiscard]] double angle() const { return state_[2]; }
  [[nodiscard]] double last_length() const { return static_cast<double>(last_length_); }

  /// Returns whether the episode ended: the pole fell, the cart left the track, or the time was up.
  bool step(bool right) {
    auto& [x, v, angle, turn] = state_;
    const double cosine = std::cos(angle);
    const double sine = std::sin(angle);
    const double push = ((right ? 10.0 : -10.0) + 0.05 * turn * turn * sine) / 1.1;
    const double turn_change = (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3.0 - 0.1 * cosine * cosine / 1.1));
    const double v_change = push - 0.05 * turn_change * cosine / 1.1;
    x += 0.02 * v;
    v += 0.02 * v_change;
    angle += 0.02 * turn;
    turn += 0.02 * turn_change;
    ++length_;
    if (std::abs(x) < 2.4 && std::abs(angle) < 0.2095 && length_ < 200) return false;
    last_length_ = length_;
    reset();
    return true;
  }

 private:
  void reset() {
    for (auto& value : state_) value = 0.1 * uniform() - 0.05;
    length_ = 0;
  }

  std::mt19937_64 generator_;
  std::array<double, 4> state_{};
  std::int64_t length_ = 0;
  std::int64_t last_length_ = 0;
};

/// What the environments of a rank went through: [kRollout, environments, ...].
struct Rollout {
  torch::Tensor observations;
  torch::Tensor hidden;
  torch::Tensor begins;
  torch::Tensor actions;
  torch::Tensor log_probabilities;
  torch::Tensor advantages;
  torch::Tensor returns;

  /// The means are those of all ranks: the batch of an update is all that they played.
  void normalize_advantages(const torch::Tensor& mean, const torch::Tensor& mean_square) {
    advantages = (advantages - mean) / ((mean_square - mean.square()).clamp_min(0.0).sqrt() + 1e-8);
  }
};

/// Plays a rank's share of the environments; episodes go on from one rollout to the next.
class Player {
 public:
  Player(const example::Flags& flags, int rank, int ranks) : flags_(flags), rank_(rank) {
    const auto share = flags.share(ranks);
    for (std::int64_t k = 0; k < share; ++k) games_.emplace_back(flags.seed, rank * share + k);
    hidden_ = torch::zeros({share, kHidden}, torch::kDouble);
    begins_ = torch::ones({share}, torch::kDouble);
  }

  /// Mean over environments of the length of the last episode that each finished.
  [[nodiscard]] double episode_length() const {
    double sum = 0.0;
    for (const auto& game : games_) sum += game.last_length();
    return sum / static_cast<double>(games_.size());
  }

  Rollout play(Policy& policy, accel::RunningStatistics& statistics, std::int64_t step) {
    const torch::NoGradGuard no_grad;
    const auto device = policy->parameters().front().device();
    std::vector<torch::Tensor> observations, hidden, begins, actions, log_probabilities, values, rewards;
    for (std::int64_t t = 0; t < kRollout; ++t) {
      const auto seen = look();
      statistics.update(seen);
      observations.push_back(statistics.normalize(seen.to(device)));
      hidden.push_back(hidden_.to(device));
      begins.push_back(begins_.to(device));
      const auto output = policy->forward(observations.back(), hidden.back(), begins.back());
      actions.push_back(act(output.log_probabilities).to(device));
      log_probabilities.push_back(output.log_probabilities.gather(-1, actions.back().unsqueeze(-1)).squeeze(-1));
      values.push_back(output.values);
      rewards.push_back(torch::full_like(output.values, 0.1));
      hidden_ = output.hidden;
    }
    begins.push_back(begins_.to(device));
    values.push_back(policy->forward(statistics.normalize(look().to(device)), hidden_, begins.back()).values);

    // Schulman et al., High-Dimensional Continuous Control Using Generalized Advantage Estimation, 2016.
    std::vector<torch::Tensor> advantages(kRollout);
    auto advantage = torch::zeros_like(values.back());
    for (auto t = advantages.size(); t-- > 0;) {
      const auto goes_on = 1.0 - begins[t + 1];
      const auto surprise = rewards[t] + 0.98 * goes_on * values[t + 1] - values[t];
      advantage = surprise + 0.98 * 0.95 * goes_on * advantage;
      advantages[t] = advantage;
    }
    values.pop_back();
    begins.pop_back();
    const auto gained = torch::stack(advantages);
    return {flags_.met(torch::stack(observations), rank_, step),
            torch::stack(hidden),
            torch::stack(begins),
            torch::stack(actions),
            torch::stack(log_probabilities),
            gained,
            gained + torch::stack(values)};
  }

 private:
  [[nodiscard]] torch::Tensor look() const {
    std::vector<double> seen;
    for (const auto& game : games_) seen.insert(seen.end(), {game.position(), game.angle()});
    return torch::tensor(seen, torch::kDouble).reshape({-1, kSeen});
  }

  /// Draws an action for each environment from its own generator, and takes it.
  torch::Tensor act(const torch::Tensor& log_probabilities) {
    const auto right = log_probabilities.exp().cpu().select(-1, 1).contiguous();
    std::vector<std::int64_t> actions;
    std::vector<double> begins;
    for (std::size_t k = 0; k < games_.size(); ++k) {
      const bool go_right = games_[k].uniform() < right.const_data_ptr<double>()[k];
      actions.push_back(go_right ? 1 : 0);
      begins.push_back(games_[k].step(go_right) ? 1.0 : 0.0);
    }
    begins_ = torch::tensor(begins, torch::kDouble);
    return torch::tensor(actions, torch::kLong);
  }

  example::Flags flags_;
  int rank_;
  std::vector<CartPole> games_;
  torch::Tensor hidden_;
  torch::Tensor begins_;
};

/// The first steps of the mini-batches of an update, epoch after epoch: drawn alike on all ranks.
inline std::vector<std::int64_t> mini_batches(const example::Flags& flags, std::int64_t step) {
  auto generator = at::detail::createCPUGenerator(flags.seed * 1'000'003 + static_cast<std::uint64_t>(step));
  std::vector<std::int64_t> firsts;
  for (std::int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const auto order = torch::randperm(kRollout / kChunk, generator);
    for (std::int64_t i = 0; i < order.size(0); ++i) firsts.push_back(order[i].item<std::int64_t>() * kChunk);
  }
  return firsts;
}

struct Loss {
  torch::Tensor total;
  double moved = 0.0;  // the KL divergence from the policy that played, for the environment where it is largest
};

/// Schulman et al., Proximal Policy Optimization Algorithms, 2017; through the steps from `first`.
inline Loss loss_of(Policy& policy, const Rollout& rollout, std::int64_t first) {
  auto hidden = rollout.hidden[first];
  std::vector<torch::Tensor> log_probabilities, values;
  for (auto t = first; t < first + kChunk; ++t) {
    const auto output = policy->forward(rollout.observations[t], hidden, rollout.begins[t]);
    log_probabilities.push_back(output.log_probabilities);
    values.push_back(output.values);
    hidden = output.hidden;
  }
  const auto of_chunk = [first](const torch::Tensor& all) { return all.narrow(0, first, kChunk); };
  const auto all_log = torch::stack(log_probabilities);
  const auto now = all_log.gather(-1, of_chunk(rollout.actions).unsqueeze(-1)).squeeze(-1);
  const auto log_ratio = now - of_chunk(rollout.log_probabilities);
  const auto ratio = log_ratio.exp();
  const auto advantages = of_chunk(rollout.advantages);
  const auto gain = torch::min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean();
  const auto value_loss = torch::mse_loss(torch::stack(values), of_chunk(rollout.returns));
  const auto entropy = -(all_log.exp() * all_log).sum(-1).mean();
  const auto moved = (ratio - 1.0 - log_ratio).detach().mean(0).max();
  return {0.5 * value_loss - gain - 0.01 * entropy, moved.item<double>()};
}

inline example::Flags read_flags(int argc, char** argv, example::Twin twin) {
  return example::read_flags(argc, argv, "PPO: a cart-pole is balanced by a policy that remembers.", twin,
                             {.steps = 60, .batch_size = 16});
}

}  // namespace ppo
