#include "core/message.hpp"
#include "metrics/class_rows.hpp"
#include "metrics/metric_call.hpp"
#include "runtime/session.hpp"

#include <accel/metrics_classes.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <iomanip>

namespace accel::metrics::detail {
using accel::detail::cat;
using accel::detail::job_usage_error;

namespace {

std::vector<std::int64_t> shape_of(Counted counted, std::int64_t classes) {
  if (counted == Counted::kCorrect) return {2};
  return {counted == Counted::kPerClass ? 3 : classes, classes};
}

std::int64_t cells_of(Counted counted, std::int64_t classes) {
  return counted == Counted::kCorrect ? 2 : classes * (counted == Counted::kPerClass ? 3 : classes);
}

// Which cells a row is counted in; `cells`, behind the last, where it is not.
at::Tensor cells_of_rows(Counted counted, const ClassRows& rows, std::int64_t classes) {
  const at::Tensor nowhere = at::full_like(rows.reference, cells_of(counted, classes));
  const at::Tensor right = rows.valid.logical_and(rows.predicted.eq(rows.reference));
  const auto cell = [&](const at::Tensor& where, const at::Tensor& index) { return at::where(where, index, nowhere); };
  if (counted == Counted::kMatrix) return cell(rows.valid, rows.reference * classes + rows.predicted);
  if (counted == Counted::kCorrect)
    return at::cat({cell(right, at::full_like(nowhere, 0)), cell(rows.valid, at::full_like(nowhere, 1))});
  return at::cat({cell(right, rows.reference), cell(rows.valid, rows.predicted + classes),
                  cell(rows.valid, rows.reference + 2 * classes)});
}

}  // namespace

ClassMetric::ClassMetric(const char* name, Counted counted, const ClassOptions& options)
    : name_(name), counted_(counted), options_(options) {
  if (options_.num_classes < 2)
    job_usage_error(name_, cat("expected num_classes of 2 or more, found ", options_.num_classes,
                               "; give the number of classes there are, seen or not"));
  description_ = cat(name_, "\nnum_classes ", options_.num_classes, "\nignore_index ",
                     options_.ignore_index ? cat(*options_.ignore_index) : std::string("none"), "\nthreshold ",
                     std::setprecision(17), options_.threshold, "\n");
  reset();
}

void ClassMetric::reset() {
  updates_ = 0;
  fault_.reset();
  counts_ = at::zeros({cells_of(counted_, options_.num_classes) + 1}, at::kLong);
}

// New tensors, here and in merge_counts, so that copies of this metric stay as they are.
void ClassMetric::update(const at::Tensor& predictions, const at::Tensor& references) {
  const at::NoGradGuard no_grad;
  const std::string call = cat(name_, ".update");
  const ClassRule rule{options_.num_classes, options_.ignore_index, options_.threshold};
  const ClassRows rows =
      class_rows(predictions, references, rule, {call.c_str(), updates_ + 1, told_at_once(references), fault_});
  const at::Tensor cells = cells_of_rows(counted_, rows, options_.num_classes);
  counts_ = counts_.to(cells.device()).index_add(0, cells, at::ones_like(cells));
  ++updates_;
}

void ClassMetric::merge_counts(const ClassMetric& other) {
  const at::NoGradGuard no_grad;
  const MetricCall call = local_call("merge");
  if (other.description_ != description_) {
    const auto [mine, theirs] = accel::detail::first_difference(description_, other.description_);
    call.fail(cat("expected a metric with the same options, found '", theirs, "' where this one has '", mine,
                  "'; make both with the same options"));
  }
  call.check(description_, problem());
  call.check(description_, other.problem());
  counts_ = counts_ + other.counts_.to(counts_.device());
  updates_ += other.updates_;
}

std::string ClassMetric::problem() const {
  return fault_text(fault_);
}

MetricCall ClassMetric::local_call(const char* function) const {
  return {cat(name_, ".", function)};
}

MetricCall ClassMetric::collective_call(const char* function, const Group& group, const SourceLocation& where) const {
  return {cat(name_, ".", function), &group, &where};
}

at::Tensor ClassMetric::counts(const MetricCall& call) const {
  call.check(description_, problem());
  const at::Tensor counted = counts_.narrow(0, 0, counts_.numel() - 1);
  return call.sum(counted).view(shape_of(counted_, options_.num_classes));
}

}  // namespace accel::metrics::detail
