#include "metrics/metric_call.hpp"

#include "comm/agreement.hpp"
#include "comm/ops.hpp"
#include "core/message.hpp"
#include "runtime/session.hpp"

#include <accel/error.hpp>

#include <ATen/ops/cat.h>

#include <vector>

namespace accel::metrics::detail {
using accel::detail::cat;
using accel::detail::job_usage_error;

void MetricCall::fail(const std::string& text) const {
  if (group == nullptr) job_usage_error(name, text);
  throw UsageError(
      accel::detail::message(accel::detail::site_of(*group), name, cat(text, accel::detail::place(*where))));
}

void MetricCall::check(const std::string& description, const std::string& problem) const {
  if (group == nullptr) {
    if (!problem.empty()) fail(problem);
    return;
  }
  accel::detail::agree_on({description, problem, "metric", "make it with the same options on every rank"}, *group,
                          name.c_str(), *where);
}

at::Tensor MetricCall::sum(const at::Tensor& counts) const {
  if (group == nullptr) return counts.cpu();
  at::Tensor all = counts.to(accel::detail::control_device(*group), counts.scalar_type(), false, /*copy=*/true);
  accel::detail::all_reduce(all, {}, *group, *where);
  return all.cpu();
}

at::Tensor MetricCall::fold(const at::Tensor& mine, const Combine& combine) const {
  if (group == nullptr) return mine.cpu();
  const at::Tensor one = mine.unsqueeze(0).to(accel::detail::control_device(*group));
  at::Tensor result;
  for (const at::Tensor& each : accel::detail::all_gather(one, Purpose::kUser, *group, *where)) {
    const at::Tensor part = each.select(0, 0).cpu();
    result = result.defined() ? combine(result, part) : part;
  }
  return result;
}

at::Tensor MetricCall::rows(const at::Tensor& mine) const {
  if (group == nullptr) return mine.cpu();
  const at::Tensor here = mine.to(accel::detail::control_device(*group));
  return at::cat(accel::detail::all_gather(here, Purpose::kUser, *group, *where)).cpu();
}

std::string text_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  return cat(tensor.sizes(), " ", c10::toString(tensor.scalar_type()), " on ", tensor.device().str());
}

void check_real(const char* call, const char* name, const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_complex() || tensor.is_sparse())
    job_usage_error(call,
                    cat("expected ", name, " of a dense real dtype, found ", text_of(tensor), "; give real numbers"));
}

void check_pair(const char* call, const char* first_name, const at::Tensor& first, const char* second_name,
                const at::Tensor& second) {
  check_real(call, first_name, first);
  check_real(call, second_name, second);
  if (first.sizes() != second.sizes() || first.device() != second.device())
    job_usage_error(call, cat("expected ", first_name, " and ", second_name, " of one shape on one device, found ",
                              text_of(first), " and ", text_of(second),
                              "; each element of one belongs to one of the "
                              "other: squeeze or expand what differs"));
}

}  // namespace accel::metrics::detail
