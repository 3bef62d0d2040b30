#pragma once

// Models whose gradients are known by heart, and a loop around them.

#include <accel/accelerator.hpp>

#include <ATen/ops/full.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace accel::test {

/// One scalar parameter w, in the beginning 0. The gradient of `loss(x)` is mean(x), whatever w is.
struct ProbeImpl : torch::nn::Module {
  explicit ProbeImpl(double start = 0.0, at::ScalarType type = at::kFloat)
      : w(register_parameter("w", at::full({}, start, at::TensorOptions(type)))) {}

  [[nodiscard]] at::Tensor loss(const std::vector<double>& x) const { return products(x).mean(); }
  [[nodiscard]] at::Tensor sum(const std::vector<double>& x) const { return products(x).sum(); }
  [[nodiscard]] at::Tensor products(const std::vector<double>& x) const {
    return w * at::tensor(x, w.options().requires_grad(false));
  }
  [[nodiscard]] double value() const { return w.item<double>(); }

  /// Another tensor takes the place of w, as when a program loads or resizes a parameter.
  void replace(double start) {
    w = at::full({}, start, w.options().requires_grad(false)).requires_grad_(true);
    parameters_["w"] = w;
  }

  at::Tensor w;
};
TORCH_MODULE(Probe);

/// Scalar parameters p0, p1, ... of one model.
struct ScalarsImpl : torch::nn::Module {
  explicit ScalarsImpl(std::size_t count, double start = 0.0, at::ScalarType type = at::kFloat) {
    for (std::size_t index = 0; index < count; ++index)
      p.push_back(register_parameter("p" + std::to_string(index), at::full({}, start, at::TensorOptions(type))));
  }
  std::vector<at::Tensor> p;
};
TORCH_MODULE(Scalars);

/// The gradient as a number; NaN where there is none.
inline double gradient_of(const at::Tensor& parameter) {
  return parameter.grad().defined() ? parameter.grad().item<double>() : std::numeric_limits<double>::quiet_NaN();
}

/// Samples that are numbers; a batch is their list.
struct Values {
  std::vector<double> x;
  using BatchType = std::vector<double>;
  [[nodiscard]] BatchType get_batch(c10::ArrayRef<std::size_t> indices) const {
    BatchType batch;
    for (const std::size_t index : indices) batch.push_back(x[index]);
    return batch;
  }
  [[nodiscard]] std::size_t size() const { return x.size(); }
};

/// `micro_batches` ones for each of `ranks` ranks, in batches of one.
inline auto ones_loader(std::size_t micro_batches, int ranks) {
  return make_data_loader(Values{std::vector<double>(micro_batches * static_cast<std::size_t>(ranks), 1.0)});
}

/// An accelerator, a probe and its optimizer: plain SGD with learning rate 1, so that w = -(sum of the gradients).
struct Rig {
  explicit Rig(const AcceleratorOptions& options = {}, at::ScalarType type = at::kFloat)
      : accelerator(options), probe(0.0, type), sgd(probe->parameters(), 1.0) {
    std::tie(probe, optimizer) = accelerator.prepare(probe, sgd);
  }

  /// One micro-batch of the usual loop: S if the optimizer stepped, else a dot.
  char micro(const std::vector<double>& x, const MicroBatchOptions& options = {}) {
    const auto guard = accelerator.accumulate(probe, options);
    accelerator.backward(probe->loss(x));
    return finish();
  }
  char finish() {
    const Stepped stepped = optimizer.step();
    optimizer.zero_grad();
    return stepped == Stepped::kYes ? 'S' : '.';
  }

  Accelerator accelerator;
  Probe probe;
  torch::optim::SGD sgd;
  Optimizer optimizer;
};

}  // namespace accel::test
