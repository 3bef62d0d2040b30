#pragma once

/// Differences between the LibTorch versions that accel is built with (2.11 to 2.15), in one place.

#include <torch/csrc/distributed/c10d/Types.hpp>

#include <c10/util/intrusive_ptr.h>

namespace accel::detail {

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
