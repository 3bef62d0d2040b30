#include "core/message.hpp"
#include "metrics/metric_call.hpp"
#include "metrics/sums.hpp"
#include "runtime/session.hpp"

#include <accel/metrics_numbers.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/scalar_tensor.h>

#include <cmath>

namespace accel::metrics {
using accel::detail::cat;
using accel::detail::job_usage_error;

namespace {

constexpr const char* kUpdate = "Mean.update";

double score(const at::Tensor& sums, const detail::MetricCall& call) {
  call.check("Mean\n", {});
  const at::Tensor all = call.fold(sums.defined() ? sums : detail::no_sums(), detail::add_sums);
  const double weight = detail::total(all, 1);
  if (weight == 0.0)
    call.fail("expected weights that do not sum to zero, found none or zeros alone; call update first, with weights");
  return detail::total(all, 0) / weight;
}

}  // namespace

void Mean::update(const at::Tensor& values, double weight) {
  const at::NoGradGuard no_grad;
  detail::check_real(kUpdate, "values", values);
  if (!(weight >= 0.0) || std::isinf(weight))
    job_usage_error(kUpdate, cat("expected a finite weight of 0 or more, found ", weight,
                                 "; give how much each value counts, as a number of samples"));
  const at::Tensor sum = values.to(at::kDouble).sum() * weight;
  const double weights = static_cast<double>(values.numel()) * weight;
  sums_ = detail::add_sums(sums_, detail::sums_of(sum, at::scalar_tensor(weights, sum.options())));
}

void Mean::update(double value, double weight) {
  update(at::scalar_tensor(value, at::kDouble), weight);
}

void Mean::update(const at::Tensor& values, const at::Tensor& weights) {
  const at::NoGradGuard no_grad;
  detail::check_pair(kUpdate, "values", values, "weights", weights);
  const at::Tensor w = weights.to(at::kDouble);
  sums_ = detail::add_sums(sums_, detail::sums_of((values.to(at::kDouble) * w).sum(), w.sum()));
}

void Mean::merge(const Mean& other) {
  const at::NoGradGuard no_grad;
  sums_ = detail::add_sums(sums_, other.sums_);
}

void Mean::reset() {
  sums_.reset();
}

double Mean::compute() const {
  return score(sums_, {"Mean.compute"});
}
double Mean::compute(const Group& group, SourceLocation where) const {
  return score(sums_, {"Mean.compute", &group, &where});
}

}  // namespace accel::metrics
