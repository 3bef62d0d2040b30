#pragma once

// What the stages share: two half moons of points, and a network that tells them apart.

#include <torch/torch.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <optional>

namespace moons {

struct Moons : torch::data::Dataset<Moons> {
  explicit Moons(std::size_t count) : count_(count) {}

  torch::data::Example<> get(std::size_t index) override {
    const auto turn = 2.399963 * static_cast<double>(index);  // never comes back to the same place
    const bool upper = index % 2 == 0;
    const double x = upper ? std::cos(std::fmod(turn, M_PI)) : 1.0 - std::cos(std::fmod(turn, M_PI));
    const double y = upper ? std::sin(std::fmod(turn, M_PI)) : 0.5 - std::sin(std::fmod(turn, M_PI));
    return {torch::tensor({x, y}, torch::kFloat), torch::tensor(upper ? 1.0 : 0.0, torch::kFloat)};
  }
  std::optional<std::size_t> size() const override { return count_; }

 private:
  std::size_t count_;
};

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return out->forward(torch::relu(in->forward(x))).squeeze(1); }

  torch::nn::Linear in = register_module("in", torch::nn::Linear(2, 32));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(32, 1));
};
TORCH_MODULE(Net);

inline torch::Tensor loss_of(Net& net, const torch::data::Example<>& batch) {
  return torch::binary_cross_entropy_with_logits(net->forward(batch.data), batch.target);
}

}  // namespace moons
