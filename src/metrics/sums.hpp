#pragma once

#include <ATen/core/Tensor.h>

namespace accel::metrics::detail {

/// Two sums and their errors, [2, 2] of float64: row 0 the sums, row 1 what they lost to rounding. Defined tensors are
/// never written, so that copies of a metric may share them.
at::Tensor no_sums();

/// @param first, second  one element each, on one device
at::Tensor sums_of(const at::Tensor& first, const at::Tensor& second);

/// On the device of `more`. Either may be undefined: nothing to add.
at::Tensor add_sums(const at::Tensor& sums, const at::Tensor& more);

/// One of the two sums, of tensors on the CPU.
double total(const at::Tensor& sums, int which);

}  // namespace accel::metrics::detail
