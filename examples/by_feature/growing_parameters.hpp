#pragma once

// A picture as a sum of coloured Gaussians: where positions are pulled hard, more are added; weak ones are removed.

#include "common.hpp"

#include <memory>
#include <sstream>

namespace growing_parameters {

struct Options {
  example::Flags flags = {};
  std::int64_t grow_every = 100;
  double prune_below = 0.3;
};

/// A model without torch::nn: three tensors with a row for each Gaussian.
struct Splats {
  explicit Splats(std::int64_t count)
      : positions(torch::rand({count, 2}).requires_grad_(true)),
        log_scales(torch::full({count, 2}, std::log(0.12)).requires_grad_(true)),
        colors((0.1 * torch::randn({count, 3})).requires_grad_(true)) {}

  [[nodiscard]] std::vector<torch::Tensor> parameters() const { return {positions, log_scales, colors}; }

  /// Colours [N, 3] at the points [N, 2].
  [[nodiscard]] torch::Tensor forward(const torch::Tensor& points) const {
    const auto distances = (points.unsqueeze(1) - positions.unsqueeze(0)) / log_scales.exp();
    return torch::exp(-0.5 * distances.square().sum(2)).matmul(colors);
  }

  torch::Tensor positions;   // [K, 2]
  torch::Tensor log_scales;  // [K, 2]
  torch::Tensor colors;      // [K, 3]
};

/// A learning rate for each of the tensors.
inline std::vector<torch::optim::OptimizerParamGroup> parameter_groups(Splats& splats) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const auto& [tensor, rate] :
       {std::pair(splats.positions, 3e-3), std::pair(splats.log_scales, 1e-2), std::pair(splats.colors, 1e-2)})
    groups.emplace_back(std::vector<torch::Tensor>{tensor}, std::make_unique<torch::optim::AdamOptions>(rate));
  return groups;
}

/// A tensor of other rows takes the place of `tensor`, in the optimizer too: row i is descended from the old row
/// `from[i]`; moments are kept where `stays[i]` is 1, and are zero where it is 0.
inline void exchange(torch::optim::Optimizer& optimizer, torch::Tensor& tensor, const torch::Tensor& rows,
                     const torch::Tensor& from, const torch::Tensor& stays) {
  const auto grown = rows.detach().clone().requires_grad_(true);
  auto& states = optimizer.state();
  if (const auto found = states.find(tensor.unsafeGetTensorImpl()); found != states.end()) {
    auto state = std::move(found->second);
    states.erase(found);
    auto& adam = static_cast<torch::optim::AdamParamState&>(*state);  // its step count is kept
    adam.exp_avg(adam.exp_avg().index_select(0, from) * stays.unsqueeze(1));
    adam.exp_avg_sq(adam.exp_avg_sq().index_select(0, from) * stays.unsqueeze(1));
    states[grown.unsafeGetTensorImpl()] = std::move(state);
  }
  for (auto& group : optimizer.param_groups())
    for (auto& parameter : group.params())
      if (parameter.is_same(tensor)) parameter = grown;
  tensor = grown;
}

/// Watches the gradients of positions, and from time to time splits Gaussians and removes others.
class Growth {
 public:
  explicit Growth(const Options& options)
      : seed_(options.flags.seed), every_(options.grow_every), prune_below_(options.prune_below) {}

  /// Takes in the gradients of one optimizer step.
  void watch(const Splats& splats) {
    const auto pull = splats.positions.grad().norm(2, 1);
    pull_ = pull_.defined() ? pull_ + pull : pull;
    ++watched_;
  }

  [[nodiscard]] bool due() const { return watched_ % every_ == 0 && watched_ <= kRounds * every_; }

  /// Changes the number of rows of all tensors. What is decided depends on gradients and weights that all ranks share,
  /// and on numbers drawn alike, so that all ranks decide the same.
  std::string grow(Splats& splats, torch::optim::Optimizer& optimizer) {
    const torch::NoGradGuard no_grad;
    const auto before = splats.positions.size(0);
    const auto weight = splats.colors.abs().amax(1) * splats.log_scales.sum(1).exp();  // the strongest colour x area
    const auto kept = weight.gt(prune_below_ * weight.mean()).nonzero().squeeze(1);
    const auto pull = pull_.index_select(0, kept);
    const auto parents = kept.index_select(0, pull.gt(0.5 * pull.mean()).nonzero().squeeze(1));

    // A parent becomes its first child in place; the second is a row at the end.
    const auto splits = torch::zeros_like(weight).index_fill_(0, parents, 1.0);
    const auto from = torch::cat({kept, parents});
    const auto stays =
        torch::cat({1.0 - splits.index_select(0, kept), torch::zeros({parents.size(0)}, weight.options())});
    const auto child = (1.0 - stays).unsqueeze(1);
    auto generator = at::detail::createCPUGenerator(seed_ * 1'000'003 + static_cast<std::uint64_t>(watched_));
    const auto shift = torch::randn({from.size(0), 2}, generator).to(weight.device());
    const auto scales = splats.log_scales.index_select(0, from);
    const auto positions = splats.positions.index_select(0, from) + child * 0.5 * scales.exp() * shift;
    exchange(optimizer, splats.positions, positions, from, stays);
    exchange(optimizer, splats.log_scales, scales - child * std::log(1.4), from, stays);
    exchange(optimizer, splats.colors, splats.colors.index_select(0, from), from, stays);
    pull_ = torch::Tensor();

    std::ostringstream text;
    text << "after " << watched_ << " optimizer steps: " << before << " Gaussians, " << before - kept.size(0)
         << " removed, " << parents.size(0) << " split: " << from.size(0);
    return text.str();
  }

 private:
  static constexpr std::int64_t kRounds = 2;

  std::uint64_t seed_;
  std::int64_t every_;
  double prune_below_;
  torch::Tensor pull_;
  std::int64_t watched_ = 0;
};

/// The picture: a red disc and a blue ring over slanted green waves. Colours [N, 3] at points [N, 2] of the unit
/// square.
inline torch::Tensor picture(const torch::Tensor& points) {
  const auto x = points.select(1, 0);
  const auto y = points.select(1, 1);
  const auto disc = torch::sigmoid(40.0 * (0.22 - torch::hypot(x - 0.35, y - 0.4)));
  const auto ring = torch::sigmoid(40.0 * (0.07 - (torch::hypot(x - 0.68, y - 0.65) - 0.2).abs()));
  const auto waves = 0.5 + 0.5 * torch::sin(9.0 * x + 5.0 * y);
  return torch::stack({disc, waves * (1.0 - 0.5 * disc), ring}, 1);
}

/// Points and the colours there.
using Batch = torch::data::Example<>;

/// The rows of this rank of the pixels of step `step`: drawn alike on all ranks.
inline Batch draw(const example::Flags& flags, std::int64_t step, int rank, int ranks) {
  auto generator = at::detail::createCPUGenerator(flags.seed * 2'000'003 + static_cast<std::uint64_t>(step));
  const auto points = flags.rows(torch::rand({flags.batch_size, 2}, generator), rank, ranks);
  return {points, flags.met(picture(points), rank, step)};
}

inline Options read_options(int argc, char** argv, example::Twin twin) {
  Options options;
  options.flags = example::read_flags(
      argc, argv, "Fits a picture by Gaussians whose number grows.", twin, {.steps = 600, .batch_size = 1024},
      [&](CLI::App& app) {
        app.add_option("--grow-every", options.grow_every, "optimizer steps before each of two rounds of growth")
            ->check(CLI::Range(1, 1 << 30))
            ->capture_default_str();
        app.add_option("--prune-below", options.prune_below, "remove Gaussians weaker than this part of the mean")
            ->check(CLI::Range(0.0, 0.9))
            ->capture_default_str();
      });
  return options;
}

}  // namespace growing_parameters
