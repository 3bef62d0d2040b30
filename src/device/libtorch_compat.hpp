#pragma once

// The differences between the LibTorch releases that accel builds against, in one place.

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <utility>

namespace accel::detail {

/// Owns an autograd node: an intrusive_ptr since 2.15, a shared_ptr before.
using NodePtr = decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));

/// The leaf that a node accumulates into; undefined for other nodes.
inline at::Tensor accumulated_variable(const torch::autograd::Node& node) {
  const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(&node);
  return leaf == nullptr ? at::Tensor() : leaf->variable;
}

// c10d

/// `asyncOp` came to the options of the operations one after the other.
template <class Options>
void set_async(Options& options, bool async) {
  if constexpr (requires { options.asyncOp; }) options.asyncOp = async;
}

template <class Options>
bool is_async(const Options& options) {
  if constexpr (requires { options.asyncOp; })
    return options.asyncOp;
  else
    return true;
}

/// A process group could not be asked for one device type before.
template <class ProcessGroup>
bool has_backend(ProcessGroup& process_group, c10::DeviceType type) {
  if constexpr (requires { process_group.hasBackendForDeviceType(type); }) {
    return process_group.hasBackendForDeviceType(type);
  } else {
    for (const c10::Device& device : process_group.getDeviceTypes())
      if (device.type() == type) return true;
    return false;
  }
}

/// The helper that makes a PREMUL_SUM was renamed and is no template argument of ours; its parts kept their names.
inline c10d::ReduceOp premultiplied_sum(double factor) {
  c10d::ReduceOp op;
  op.op_ = c10d::ReduceOp::PREMUL_SUM;
  op.supplement_ = c10::make_intrusive<c10d::NCCLPreMulSumSupplement>(factor);
  return op;
}

/// The factor of a PREMUL_SUM.
inline double factor_of(const c10d::ReduceOp& op) {
  const auto* const supplement = static_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  if (supplement == nullptr) return 1.0;
  return supplement->tensor_factor.defined() ? supplement->tensor_factor.item().toDouble() : supplement->double_factor;
}

}  // namespace accel::detail
