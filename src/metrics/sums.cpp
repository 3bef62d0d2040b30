#include "metrics/sums.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

namespace accel::metrics::detail {

at::Tensor no_sums() {
  return at::zeros({2, 2}, at::kDouble);
}

at::Tensor sums_of(const at::Tensor& first, const at::Tensor& second) {
  const at::Tensor sums = at::stack({first.reshape({}).to(at::kDouble), second.reshape({}).to(at::kDouble)});
  return at::stack({sums, at::zeros_like(sums)});
}

at::Tensor add_sums(const at::Tensor& sums, const at::Tensor& more) {
  if (!sums.defined()) return more;
  if (!more.defined()) return sums;
  const at::Tensor here = sums.to(more.device());
  const at::Tensor sum = here[0] + more[0];
  const at::Tensor added = sum - here[0];
  const at::Tensor error = (here[0] - (sum - added)) + (more[0] - added);
  // Of infinite sums the error would be NaN.
  const at::Tensor lost = at::where(at::isfinite(sum), here[1] + more[1] + error, at::zeros_like(sum));
  return at::stack({sum, lost});
}

double total(const at::Tensor& sums, int which) {
  const auto* values = sums.data_ptr<double>();
  return values[which] + values[2 + which];
}

}  // namespace accel::metrics::detail
