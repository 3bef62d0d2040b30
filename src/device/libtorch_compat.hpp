#pragma once

// The differences between the LibTorch releases that accel builds against, in one place.

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace accel::detail {

/// Owns an autograd node: an intrusive_ptr since 2.15, a shared_ptr before.
using NodePtr = decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));

/// The leaf that a node accumulates into; undefined for other nodes.
inline at::Tensor accumulated_variable(const torch::autograd::Node& node) {
  const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(&node);
  return leaf == nullptr ? at::Tensor() : leaf->variable;
}

}  // namespace accel::detail
