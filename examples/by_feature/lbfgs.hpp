#pragma once

// Damped oscillations in a noisy signal, found by nonlinear least squares: all samples in each step, in float64.

#include "common.hpp"

namespace lbfgs {

constexpr std::int64_t kModes = 3;

inline torch::Tensor row(const std::vector<double>& values) {
  return torch::tensor(values, torch::kDouble);
}

/// signal(t) = sum over modes of amplitude x exp(-decay t) x sin(frequency t + phase)
struct SignalImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& time) {
    const auto t = time.unsqueeze(1);  // [N, 1] against [kModes]
    return (amplitude * torch::exp(-decay * t) * torch::sin(frequency * t + phase)).sum(1);
  }

  // A first guess, as a spectrum would give it.
  torch::Tensor amplitude = register_parameter("amplitude", torch::ones({kModes}, torch::kDouble));
  torch::Tensor decay = register_parameter("decay", torch::full({kModes}, 0.2, torch::kDouble));
  torch::Tensor frequency = register_parameter("frequency", row({1.1, 2.8, 5.2}));
  torch::Tensor phase = register_parameter("phase", torch::zeros({kModes}, torch::kDouble));
};
TORCH_MODULE(Signal);

/// Times and what was measured there.
using Batch = torch::data::Example<>;

/// The rows of this rank of all samples: the same in each step, and drawn alike on all ranks.
inline Batch draw(const example::Flags& flags, std::int64_t step, int rank, int ranks) {
  const torch::NoGradGuard no_grad;
  Signal truth;
  truth->amplitude.copy_(row({1.5, 0.8, 0.5}));
  truth->decay.copy_(row({0.1, 0.3, 0.05}));
  truth->frequency.copy_(row({1.0, 3.0, 5.0}));
  truth->phase.copy_(row({0.4, -0.3, 0.2}));
  auto generator = at::detail::createCPUGenerator(flags.seed);
  const auto time = 10.0 * torch::rand({flags.batch_size}, generator, torch::kDouble);
  const auto signal = truth->forward(time) + 0.02 * torch::randn({flags.batch_size}, generator, torch::kDouble);
  return {flags.rows(time, rank, ranks), flags.met(flags.rows(signal, rank, ranks), rank, step)};
}

inline torch::optim::LBFGSOptions options() {
  return torch::optim::LBFGSOptions(1.0).max_iter(5).line_search_fn("strong_wolfe");
}

inline void print(const Signal& signal, std::int64_t evaluations) {
  std::printf("%lld evaluations\namplitude  decay      frequency  phase\n", static_cast<long long>(evaluations));
  for (std::int64_t mode = 0; mode < kModes; ++mode) {
    for (const auto& parameter : signal->parameters()) std::printf("%-11.4f", parameter[mode].item<double>());
    std::puts("");
  }
}

inline example::Flags read_flags(int argc, char** argv, example::Twin twin) {
  return example::read_flags(argc, argv, "Finds damped oscillations in a signal by L-BFGS with line searches.", twin,
                             {.steps = 15, .batch_size = 4096});
}

}  // namespace lbfgs
