#pragma once

// A denoiser of spirals: an encoder that was trained before, and a new head.

#include "common.hpp"

namespace freeze_thaw {

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return head->forward(torch::tanh(encoder->forward(x))); }

  torch::nn::Sequential encoder = register_module(
      "encoder", torch::nn::Sequential(torch::nn::Linear(2, 32), torch::nn::Tanh(), torch::nn::Linear(32, 32)));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(32, 2));
};
TORCH_MODULE(Net);

inline void set_trainable(torch::nn::Module& module, bool trainable) {
  for (auto& parameter : module.parameters()) parameter.set_requires_grad(trainable);
}

/// Noisy points and clean ones.
using Batch = torch::data::Example<>;

/// The rows of this rank of step `step`: drawn alike on all ranks.
inline Batch draw(const example::Flags& flags, std::int64_t step, int rank, int ranks) {
  auto generator = at::detail::createCPUGenerator(flags.seed * 1'000'003 + static_cast<std::uint64_t>(step));
  const auto turn = torch::rand({flags.batch_size}, generator) * 9.0;
  const auto clean = torch::stack({turn * turn.cos(), turn * turn.sin()}, 1) / 9.0;
  const auto noisy = clean + 0.05 * torch::randn({flags.batch_size, 2}, generator);
  return {flags.met(flags.rows(noisy, rank, ranks), rank, step), flags.rows(clean, rank, ranks)};
}

inline example::Flags read_flags(int argc, char** argv, example::Twin twin) {
  return example::read_flags(argc, argv, "Trains a head first, and after a third of the steps its encoder too.", twin,
                             {.steps = 300, .batch_size = 64});
}

}  // namespace freeze_thaw
