#include "metrics/class_rows.hpp"

#include "core/message.hpp"
#include "metrics/metric_call.hpp"
#include "runtime/session.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include <limits>

namespace accel::metrics::detail {
using accel::detail::cat;
using accel::detail::job_usage_error;

namespace {

// Stands for a prediction that is NaN; no class of anybody.
constexpr std::int64_t kNaN = std::numeric_limits<std::int64_t>::min();

bool is_index(const at::Tensor& tensor) {
  return c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
}

[[noreturn]] void refuse(const char* call, const at::Tensor& predictions, const at::Tensor& references,
                         std::int64_t num_classes) {
  job_usage_error(call, cat("expected references of class indices [...], and predictions that are class indices [...], "
                            "floating scores [..., ",
                            num_classes,
                            "], or floating scores [...] of class 1 of two, on the same device, found "
                            "predictions ",
                            text_of(predictions), " and references ", text_of(references),
                            "; the classes come last: use movedim(1, -1) where they are dimension 1"));
}

// The class of each row, where rows of scores that are NaN have none.
at::Tensor with_nan(const at::Tensor& classes, const at::Tensor& nan) {
  return at::where(nan, at::full({}, kNaN, classes.options()), classes);
}

at::Tensor predicted_classes(const at::Tensor& predictions, const at::Tensor& references, const ClassRule& rule,
                             const char* call) {
  if (is_index(predictions) && predictions.sizes() == references.sizes())
    return predictions.reshape({-1}).to(at::kLong);
  if (!predictions.is_floating_point()) refuse(call, predictions, references, rule.num_classes);
  if (predictions.sizes() == references.sizes() && rule.num_classes == 2) {
    const at::Tensor scores = predictions.reshape({-1});
    return with_nan(scores.gt(rule.threshold).to(at::kLong), at::isnan(scores));
  }
  if (predictions.dim() != references.dim() + 1 || predictions.size(-1) != rule.num_classes ||
      predictions.sizes().slice(0, static_cast<std::size_t>(references.dim())) != references.sizes())
    refuse(call, predictions, references, rule.num_classes);
  const at::Tensor scores = predictions.reshape({references.numel(), rule.num_classes});
  return with_nan(scores.argmax(1), at::isnan(scores).any(1));
}

// As FaultLog::first: the first row that is wrong, or zeros; found without waiting for the device.
at::Tensor first_fault(const at::Tensor& wrong, const at::Tensor& predicted, const at::Tensor& reference,
                       std::int64_t update, std::int64_t num_classes) {
  const at::Tensor index = wrong.to(at::kByte).argmax(0, /*keepdim=*/true);
  const at::Tensor found =
      at::stack({at::full({1}, update, predicted.options()), index, predicted.index_select(0, index),
                 reference.index_select(0, index), at::full({1}, num_classes, predicted.options())});
  return found.view({5}) * wrong.any().to(at::kLong);
}

bool outside(std::int64_t value, std::int64_t num_classes) {
  return value < 0 || value >= num_classes;
}

}  // namespace

bool told_at_once(const at::Tensor& tensor) {
  return tensor.device().is_cpu();
}

std::string fault_text(const at::Tensor& fault) {
  if (!fault.defined()) return {};
  const at::Tensor on_host = fault.cpu();
  const auto* values = on_host.data_ptr<std::int64_t>();
  if (values[0] == 0) return {};
  const std::int64_t num_classes = values[4];
  const std::string place = cat(" at index ", values[1], " of update ", values[0]);
  if (values[2] == kNaN)
    return cat(
        "expected predictions that are numbers, found NaN", place,
        " (indices count rows of the flattened references); look for where it comes from, or leave such rows out "
        "by ignore_index");
  const bool in_reference = outside(values[3], num_classes);
  return cat("expected class indices in [0, ", num_classes, "), found ", in_reference ? "reference " : "prediction ",
             values[in_reference ? 3 : 2], place,
             " (indices count rows of the flattened references); correct num_classes, or leave such rows out by "
             "ignore_index");
}

at::Tensor valid_rows(const at::Tensor& predicted, const at::Tensor& reference, const ClassRule& rule,
                      const FaultLog& log) {
  const auto inside = [&](const at::Tensor& classes) {
    return classes.ge(0).logical_and_(classes.lt(rule.num_classes));
  };
  const at::Tensor inside_both = inside(predicted).logical_and_(inside(reference));
  const at::Tensor counts = rule.ignore_index ? reference.ne(*rule.ignore_index) : reference.eq(reference);
  at::Tensor valid = counts.logical_and(inside_both);
  if (predicted.numel() == 0) return valid;
  const at::Tensor wrong = counts.logical_and(inside_both.logical_not());
  if (log.at_once && !wrong.any().item<bool>()) return valid;
  const at::Tensor fault = first_fault(wrong, predicted, reference, log.update, rule.num_classes);
  if (log.at_once) job_usage_error(log.call, fault_text(fault));
  log.first = log.first.defined() ? at::where(log.first[0].ne(0), log.first.to(fault.device()), fault) : fault;
  return valid;
}

ClassRows class_rows(const at::Tensor& predictions, const at::Tensor& references, const ClassRule& rule,
                     const FaultLog& log) {
  if (!predictions.defined() || !references.defined() || !is_index(references) ||
      predictions.device() != references.device())
    refuse(log.call, predictions, references, rule.num_classes);
  ClassRows rows;
  rows.predicted = predicted_classes(predictions, references, rule, log.call);
  rows.reference = references.reshape({-1}).to(at::kLong);
  rows.valid = valid_rows(rows.predicted, rows.reference, rule, log);
  return rows;
}

}  // namespace accel::metrics::detail
