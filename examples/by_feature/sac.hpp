#pragma once

// The swing-up of a pendulum, and what soft actor-critic needs for it: networks, replay buffer, losses. In float64:
// what is played depends on weights, and grows apart slowly enough for runs on other numbers of ranks to be compared.

#include "common.hpp"

#include <accel/averaging.hpp>

#include <algorithm>
#include <numbers>
#include <random>
#include <tuple>

namespace sac {

constexpr std::int64_t kSeen = 3;          // of a pendulum: cosine and sine of its angle, and its speed
constexpr std::int64_t kWidth = 64;        // of hidden layers
constexpr std::int64_t kPendulums = 2;     // played at a time
constexpr std::int64_t kEpisode = 200;     // steps
constexpr std::int64_t kCapacity = 20000;  // transitions of the replay buffer
constexpr double kTau = 0.01;              // how fast target networks follow

inline torch::nn::Sequential layers(std::int64_t in, std::int64_t out) {
  return torch::nn::Sequential(torch::nn::Linear(in, kWidth), torch::nn::SiLU(), torch::nn::Linear(kWidth, kWidth),
                               torch::nn::SiLU(), torch::nn::Linear(kWidth, out));
}

/// A Gaussian, squashed into (-1, 1) by tanh.
struct PolicyImpl : torch::nn::Module {
  struct Sample {
    torch::Tensor actions;
    torch::Tensor log_probabilities;
  };

  PolicyImpl() { to(torch::kDouble); }

  Sample forward(const torch::Tensor& observations, const torch::Tensor& noise) {
    const auto output = net->forward(observations).chunk(2, -1);
    const auto log_deviation = -1.5 + 3.5 * torch::tanh(output[1]);  // from -5 to 2
    const auto plain = output[0] + log_deviation.exp() * noise;
    const auto squash = 2.0 * (std::numbers::ln2 - plain - torch::softplus(-2.0 * plain));  // log(1 - tanh^2)
    const auto log_density = -0.5 * noise.square() - log_deviation - 0.5 * std::log(2.0 * std::numbers::pi);
    return {torch::tanh(plain), (log_density - squash).sum(-1)};
  }

  torch::nn::Sequential net = register_module("net", layers(kSeen, 2));
};
TORCH_MODULE(Policy);

/// Two estimates of an action's value, [2, batch]; the smaller one is believed.
struct CriticsImpl : torch::nn::Module {
  CriticsImpl() { to(torch::kDouble); }

  torch::Tensor forward(const torch::Tensor& observations, const torch::Tensor& actions) {
    const auto input = torch::cat({observations, actions}, -1);
    return torch::stack({first->forward(input).squeeze(-1), second->forward(input).squeeze(-1)});
  }

  torch::nn::Sequential first = register_module("first", layers(kSeen + 1, 1));
  torch::nn::Sequential second = register_module("second", layers(kSeen + 1, 1));
};
TORCH_MODULE(Critics);

/// Slow copies of the critics, beside them on their device. They are not trained and so need no prepare.
inline Critics target_of(const Critics& critics) {
  Critics target;
  target->to(critics->parameters().front().device());
  accel::polyak_update(target, critics, 1.0);
  return target;
}

/// A pendulum that is too heavy to be lifted without swinging.
class Pendulum {
 public:
  explicit Pendulum(std::uint64_t seed) : generator_(seed) { reset(); }

  double uniform(double limit) { return std::uniform_real_distribution<double>(-limit, limit)(generator_); }
  double normal() { return std::normal_distribution<double>()(generator_); }
  [[nodiscard]] std::vector<double> look() const { return {std::cos(angle_), std::sin(angle_), speed_}; }
  [[nodiscard]] double last_return() const { return last_return_; }

  /// Returns the reward; zero is the best: upright (angle 0), at rest, without effort.
  double step(double action) {
    const double torque = 2.0 * action;
    const double from_top = std::remainder(angle_, 2.0 * std::numbers::pi);
    const double reward = -(from_top * from_top + 0.1 * speed_ * speed_ + 0.001 * torque * torque);
    speed_ = std::clamp(speed_ + 0.05 * (15.0 * std::sin(angle_) + 3.0 * torque), -8.0, 8.0);
    angle_ += 0.05 * speed_;
    return_ += reward;
    return reward;
  }

  void reset() {
    angle_ = uniform(std::numbers::pi);
    speed_ = uniform(1.0);
    last_return_ = std::exchange(return_, 0.0);
  }

 private:
  std::mt19937_64 generator_;
  double angle_ = 0.0;
  double speed_ = 0.0;
  double return_ = 0.0;
  double last_return_ = 0.0;
};

/// Transitions, and the noise that their step needs. There is no end of an episode among them: time limits are none to
/// the critics.
struct Batch {
  torch::Tensor observations;
  torch::Tensor actions;
  torch::Tensor rewards;
  torch::Tensor next_observations;
  torch::Tensor noise;
  torch::Tensor next_noise;
};

/// Its parts, for accelerator.to_device.
inline auto accel_fields(Batch& batch) {
  return std::tie(batch.observations, batch.actions, batch.rewards, batch.next_observations, batch.noise,
                  batch.next_noise);
}

/// Pendulums and the replay buffer. A pendulum costs nothing beside the networks, so every rank plays all of them:
/// with equal weights and equal random numbers, all ranks hold the same buffer, and nothing of it is sent. What they
/// divide is the batch of a step.
class Experience {
 public:
  /// Begins with random actions, two episodes of each pendulum.
  explicit Experience(const example::Flags& flags) : rows_(torch::zeros({kCapacity, 2 * kSeen + 2}, torch::kDouble)) {
    for (std::uint64_t k = 0; k < kPendulums; ++k) pendulums_.emplace_back(flags.seed * 1'000'003 + k);
    for (std::int64_t t = 0; t < 2 * kEpisode; ++t) play([](Pendulum& pendulum) { return pendulum.uniform(1.0); });
  }

  /// One step of each pendulum, as the policy says.
  void play(Policy& policy) {
    const torch::NoGradGuard no_grad;
    const auto options = policy->parameters().front().options().requires_grad(false);
    play([&](Pendulum& pendulum) {
      const auto seen = torch::tensor(pendulum.look(), options).unsqueeze(0);
      return policy->forward(seen, torch::full({1, 1}, pendulum.normal(), options)).actions.item<double>();
    });
  }

  /// The rows of this rank of the batch of step `step`: drawn alike on all ranks.
  [[nodiscard]] Batch draw(const example::Flags& flags, std::int64_t step, int rank, int ranks) const {
    auto generator = at::detail::createCPUGenerator(flags.seed * 1'000'003 + static_cast<std::uint64_t>(step));
    const auto drawn = torch::randint(std::min(played_, kCapacity), {flags.batch_size}, generator, torch::kLong);
    const auto noise = torch::randn({flags.batch_size, 2}, generator, torch::kDouble);
    const auto columns = flags.met(rows_.index_select(0, flags.rows(drawn, rank, ranks)), rank, step)
                             .split_with_sizes({kSeen, 1, 1, kSeen}, 1);
    const auto noises = flags.rows(noise, rank, ranks).split(1, 1);
    return {columns[0], columns[1], columns[2].squeeze(1), columns[3], noises[0], noises[1]};
  }

  /// Of the last episode that each pendulum finished.
  [[nodiscard]] double mean_return() const {
    double sum = 0.0;
    for (const auto& pendulum : pendulums_) sum += pendulum.last_return();
    return sum / static_cast<double>(kPendulums);
  }

 private:
  template <class Act>
  void play(const Act& act) {
    for (auto& pendulum : pendulums_) {
      auto row = pendulum.look();
      const double action = act(pendulum);
      const double reward = pendulum.step(action);
      row.insert(row.end(), {action, reward});
      const auto next = pendulum.look();
      row.insert(row.end(), next.begin(), next.end());
      rows_[played_++ % kCapacity] = torch::tensor(row, torch::kDouble);
    }
    if (played_ % (kEpisode * kPendulums) == 0)
      for (auto& pendulum : pendulums_) pendulum.reset();
  }

  std::vector<Pendulum> pendulums_;
  torch::Tensor rows_;
  std::int64_t played_ = 0;
};

// Haarnoja et al., Soft Actor-Critic Algorithms and Applications, 2018.
inline torch::Tensor critic_loss(Critics& critics, Critics& target, Policy& policy, const torch::Tensor& log_alpha,
                                 const Batch& batch) {
  torch::Tensor values;
  {
    const torch::NoGradGuard no_grad;
    const auto next = policy->forward(batch.next_observations, batch.next_noise);
    const auto next_values = target->forward(batch.next_observations, next.actions).amin(0);
    values = 0.1 * batch.rewards + 0.98 * (next_values - log_alpha.exp() * next.log_probabilities);
  }
  const auto found = critics->forward(batch.observations, batch.actions);
  return torch::mse_loss(found, values.expand_as(found));
}

struct PolicyLosses {
  torch::Tensor policy;
  torch::Tensor temperature;  // holds the entropy of the policy at -1
};

inline PolicyLosses policy_losses(Policy& policy, Critics& critics, const torch::Tensor& log_alpha,
                                  const Batch& batch) {
  const auto now = policy->forward(batch.observations, batch.noise);
  const auto values = critics->forward(batch.observations, now.actions).amin(0);
  return {(log_alpha.exp().detach() * now.log_probabilities - values).mean(),
          -(log_alpha * (now.log_probabilities.detach() - 1.0)).mean()};
}

inline example::Flags read_flags(int argc, char** argv, example::Twin twin) {
  return example::read_flags(argc, argv, "SAC: a pendulum is swung up and balanced.", twin,
                             {.steps = 4000, .batch_size = 128});
}

}  // namespace sac
