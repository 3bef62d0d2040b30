#include "core/message.hpp"
#include "metrics/metric_call.hpp"
#include "runtime/session.hpp"

#include <accel/metrics_classes.hpp>

#include <ATen/ops/empty.h>

#include <array>
#include <cmath>
#include <iomanip>
#include <limits>

namespace accel::metrics {
using accel::detail::cat;
using accel::detail::job_usage_error;

namespace detail {
namespace {

constexpr std::array<const char*, 4> kAverageNames = {"binary", "macro", "micro", "weighted"};

void check_options(const char* name, const ClassScoreOptions& options) {
  const double zero = options.zero_division;
  if (options.average == Average::kBinary && options.num_classes != 2)
    job_usage_error(name, cat("expected num_classes 2 with Average::kBinary, found ", options.num_classes,
                              "; choose kMacro, kMicro or kWeighted"));
  if (options.pos_label < 0 || options.pos_label >= options.num_classes)
    job_usage_error(name, cat("expected a pos_label in [0, ", options.num_classes, "), found ", options.pos_label,
                              "; name the class that is to be scored"));
  if (zero != 0.0 && zero != 1.0 && !std::isnan(zero))
    job_usage_error(name, cat("expected zero_division of 0, 1 or NaN, found ", zero, "; choose one of them"));
}

[[noreturn]] void no_rows(const MetricCall& call) {
  call.fail("expected rows to score, found none; call update first, and look whether ignore_index leaves any");
}

// [3, classes] of int64: the row of one kind of count.
const std::int64_t* row_of(const at::Tensor& counts, std::int64_t row) {
  return counts.data_ptr<std::int64_t>() + row * counts.size(1);
}

std::int64_t sum(const std::int64_t* values, std::int64_t count) {
  std::int64_t total = 0;
  for (std::int64_t i = 0; i < count; ++i) total += values[i];
  return total;
}

}  // namespace

ClassScore::ClassScore(const char* name, Kind kind, const ClassScoreOptions& options)
    : ClassMetric(name, Counted::kPerClass, {options.num_classes, options.ignore_index, options.threshold}),
      kind_(kind),
      options_(options) {
  check_options(name, options_);
  describe(cat("average ", kAverageNames.at(static_cast<std::size_t>(options_.average)), "\npos_label ",
               options_.pos_label, "\nzero_division ",
               std::isnan(options_.zero_division) ? std::string("NaN") : cat(options_.zero_division), "\nall_classes ",
               options_.all_classes, "\n"));
}

double ClassScore::score(std::int64_t right, std::int64_t predicted, std::int64_t referred) const {
  std::int64_t numerator = right;
  std::int64_t denominator = kind_ == Kind::kPrecision ? predicted : referred;
  if (kind_ == Kind::kF1) {
    numerator = 2 * right;
    denominator = predicted + referred;
  }
  if (denominator == 0) return options_.zero_division;
  return static_cast<double>(numerator) / static_cast<double>(denominator);
}

double ClassScore::mean_of_classes(const at::Tensor& counts) const {
  double total = 0.0;
  double weights = 0.0;
  double plain_total = 0.0;
  double plain_count = 0.0;
  for (std::int64_t each = 0; each < options_.num_classes; ++each) {
    const std::int64_t predicted = row_of(counts, 1)[each];
    const std::int64_t referred = row_of(counts, 2)[each];
    if (predicted + referred == 0 && !options_.all_classes) continue;
    const double value = score(row_of(counts, 0)[each], predicted, referred);
    if (std::isnan(value)) continue;
    const double weight = options_.average == Average::kWeighted ? static_cast<double>(referred) : 1.0;
    total += weight * value;
    weights += weight;
    plain_total += value;
    plain_count += 1.0;
  }
  if (plain_count == 0.0) return std::numeric_limits<double>::quiet_NaN();
  // Where NaN left only classes without references: their plain mean, as scikit-learn has it.
  return weights > 0.0 ? total / weights : plain_total / plain_count;
}

double ClassScore::averaged(const MetricCall& call) const {
  const at::Tensor counts = this->counts(call);
  const std::int64_t rows = sum(row_of(counts, 2), options_.num_classes);
  if (rows == 0) no_rows(call);
  if (options_.average == Average::kMicro) return score(sum(row_of(counts, 0), options_.num_classes), rows, rows);
  if (options_.average != Average::kBinary) return mean_of_classes(counts);
  const std::int64_t at = options_.pos_label;
  return score(row_of(counts, 0)[at], row_of(counts, 1)[at], row_of(counts, 2)[at]);
}

at::Tensor ClassScore::per_class(const MetricCall& call) const {
  const at::Tensor counts = this->counts(call);
  if (sum(row_of(counts, 2), options_.num_classes) == 0) no_rows(call);
  at::Tensor scores = at::empty({options_.num_classes}, at::kDouble);
  for (std::int64_t each = 0; each < options_.num_classes; ++each)
    scores.data_ptr<double>()[each] = score(row_of(counts, 0)[each], row_of(counts, 1)[each], row_of(counts, 2)[each]);
  return scores;
}

double ClassScore::compute() const {
  return averaged(local_call("compute"));
}
double ClassScore::compute(const Group& group, SourceLocation where) const {
  return averaged(collective_call("compute", group, where));
}
at::Tensor ClassScore::compute_per_class() const {
  return per_class(local_call("compute_per_class"));
}
at::Tensor ClassScore::compute_per_class(const Group& group, SourceLocation where) const {
  return per_class(collective_call("compute_per_class", group, where));
}

namespace {

double accuracy(const at::Tensor& counts, const MetricCall& call) {
  const auto* values = counts.data_ptr<std::int64_t>();
  if (values[1] == 0) no_rows(call);
  return static_cast<double>(values[0]) / static_cast<double>(values[1]);
}

double matthews(const at::Tensor& counts, const MetricCall& call) {
  const std::int64_t classes = counts.size(1);
  const auto rows = static_cast<double>(sum(row_of(counts, 2), classes));
  if (rows == 0.0) no_rows(call);
  double both = 0.0;
  double predictions = 0.0;
  double references = 0.0;
  for (std::int64_t each = 0; each < classes; ++each) {
    const auto predicted = static_cast<double>(row_of(counts, 1)[each]);
    const auto referred = static_cast<double>(row_of(counts, 2)[each]);
    both += predicted * referred;
    predictions += predicted * predicted;
    references += referred * referred;
  }
  const auto right = static_cast<double>(sum(row_of(counts, 0), classes));
  const double spread = (rows * rows - predictions) * (rows * rows - references);
  return spread == 0.0 ? 0.0 : (right * rows - both) / std::sqrt(spread);
}

}  // namespace
}  // namespace detail

Accuracy::Accuracy(const ClassOptions& options) : ClassMetric("Accuracy", detail::Counted::kCorrect, options) {}
double Accuracy::compute() const {
  const detail::MetricCall call = local_call("compute");
  return detail::accuracy(counts(call), call);
}
double Accuracy::compute(const Group& group, SourceLocation where) const {
  const detail::MetricCall call = collective_call("compute", group, where);
  return detail::accuracy(counts(call), call);
}

Precision::Precision(const ClassScoreOptions& options) : ClassScore("Precision", Kind::kPrecision, options) {}
Recall::Recall(const ClassScoreOptions& options) : ClassScore("Recall", Kind::kRecall, options) {}
F1::F1(const ClassScoreOptions& options) : ClassScore("F1", Kind::kF1, options) {}

MatthewsCorrelation::MatthewsCorrelation(const ClassOptions& options)
    : ClassMetric("MatthewsCorrelation", detail::Counted::kPerClass, options) {}
double MatthewsCorrelation::compute() const {
  const detail::MetricCall call = local_call("compute");
  return detail::matthews(counts(call), call);
}
double MatthewsCorrelation::compute(const Group& group, SourceLocation where) const {
  const detail::MetricCall call = collective_call("compute", group, where);
  return detail::matthews(counts(call), call);
}

ConfusionMatrix::ConfusionMatrix(const ClassOptions& options)
    : ClassMetric("ConfusionMatrix", detail::Counted::kMatrix, options) {}
// A copy: where there is one rank, the counts themselves would come out.
at::Tensor ConfusionMatrix::compute() const {
  return counts(local_call("compute")).clone();
}
at::Tensor ConfusionMatrix::compute(const Group& group, SourceLocation where) const {
  return counts(collective_call("compute", group, where)).clone();
}

}  // namespace accel::metrics
