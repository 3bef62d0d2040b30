#pragma once

#include <accel/collectives.hpp>
#include <accel/export.hpp>
#include <accel/source_location.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

/// Metrics of classes: streaming, and over ranks equal bit for bit to those of one rank, since all are worked out from
/// counts (int64).
///
/// All take the same in `update(predictions, references)`. References are class indices [...] of an integer dtype (or
/// bool). Predictions are, by dtype and shape,
///   - integers or bool [...]: class indices;
///   - floating [..., num_classes]: logits or probabilities, of which the largest counts (the first one in a tie);
///   - floating [...]: scores of class 1 of two; class 1 is predicted where score > threshold (for logits set 0).
/// Rows whose reference is `ignore_index` are left out, whatever is predicted there.
///
/// Errors of `update` (UsageError; nothing was taken in): shapes or devices that do not fit, another dtype; a class
/// outside [0, num_classes), or a prediction that is NaN (names value and index). On an accelerator `update` does not
/// wait for the device: there such a row is told by `compute`, on all ranks, and by `merge`.
///
/// `compute()` is local. `compute(group)` is collective: every rank of the group calls it, ranks without a row as well;
/// the result is that of the rows of all ranks. It changes nothing, so that updates may go on. Both throw a UsageError
/// where there is no row at all, as scikit-learn does; the collective one on all ranks, also where options differ.
namespace accel::metrics {

/// How scores of classes become one. That of scikit-learn's `average=None` is `compute_per_class`.
enum class Average {
  kBinary,   ///< that of pos_label alone
  kMacro,    ///< the mean over classes
  kMicro,    ///< of the counts of all classes together
  kWeighted  ///< the mean over classes, weighted by how many references each has
};

/// Of Accuracy, ConfusionMatrix and MatthewsCorrelation.
struct ClassOptions {
  std::int64_t num_classes = 2;
  std::optional<std::int64_t> ignore_index{};  ///< references of this value are left out
  double threshold = 0.5;                      ///< of floating predictions [...], see above
};

/// Of Precision, Recall and F1.
struct ClassScoreOptions {
  Average average = Average::kBinary;  ///< kBinary wants num_classes 2
  std::int64_t num_classes = 2;
  std::int64_t pos_label = 1;                  ///< the class that kBinary scores
  std::optional<std::int64_t> ignore_index{};  ///< references of this value are left out
  double threshold = 0.5;                      ///< of floating predictions [...], see above
  /// The score of a class where it is 0 / 0: 0, 1 or NaN. Means leave NaN out.
  double zero_division = 0.0;
  /// kMacro averages all num_classes classes, as scikit-learn does with `labels=range(num_classes)`. Otherwise those
  /// that occur in predictions or references, as it does without labels.
  bool all_classes = false;
};

namespace detail {

struct MetricCall;

/// What a metric counts of rows of classes.
enum class Counted {
  kCorrect,   ///< [2]: rows whose prediction is right; rows
  kPerClass,  ///< [3, num_classes]: right predictions, predictions, references of each class
  kMatrix     ///< [num_classes, num_classes]: rows by reference and prediction
};

/// Counts of rows, which the metrics of this header score.
class ACCEL_API ClassMetric {
 public:
  /// Takes rows of this rank in. Local; see the top of this file.
  void update(const at::Tensor& predictions, const at::Tensor& references);

  /// As if nothing was taken in.
  void reset();

 protected:
  ClassMetric(const char* name, Counted counted, const ClassOptions& options);

  void merge_counts(const ClassMetric& other);
  [[nodiscard]] at::Tensor counts(const MetricCall& call) const;  ///< of all ranks of the call; int64, CPU
  [[nodiscard]] MetricCall local_call(const char* function) const;
  [[nodiscard]] MetricCall collective_call(const char* function, const Group& group, const SourceLocation& where) const;

  /// Adds to what ranks compare: options of derived metrics.
  void describe(const std::string& more) { description_ += more; }

 private:
  [[nodiscard]] std::string problem() const;

  const char* name_;
  Counted counted_;
  ClassOptions options_;
  std::string description_;
  std::int64_t updates_ = 0;
  at::Tensor counts_;  // flat, int64, on the device of the last update; its last element counts what is left out
  at::Tensor fault_;   // the first row that was wrong (class_rows.hpp); undefined where updates tell at once
};

/// Precision, Recall and F1 are one quotient each.
class ACCEL_API ClassScore : public ClassMetric {
 public:
  /// The score, averaged. Local.
  [[nodiscard]] double compute() const;
  /// That of the rows of all ranks, the same bits on each. Collective.
  [[nodiscard]] double compute(const Group& group, SourceLocation where = SourceLocation::current()) const;

  /// The score of each class: [num_classes], float64, CPU; zero_division for a class that never occurs. Local.
  [[nodiscard]] at::Tensor compute_per_class() const;
  [[nodiscard]] at::Tensor compute_per_class(const Group& group,
                                             SourceLocation where = SourceLocation::current()) const;

 protected:
  enum class Kind { kPrecision, kRecall, kF1 };
  ClassScore(const char* name, Kind kind, const ClassScoreOptions& options);

 private:
  [[nodiscard]] double averaged(const MetricCall& call) const;
  [[nodiscard]] at::Tensor per_class(const MetricCall& call) const;
  [[nodiscard]] double mean_of_classes(const at::Tensor& counts) const;
  [[nodiscard]] double score(std::int64_t right, std::int64_t predicted, std::int64_t referred) const;

  Kind kind_;
  ClassScoreOptions options_;
};

}  // namespace detail

/// The share of rows whose prediction is the reference.
class ACCEL_API Accuracy : public detail::ClassMetric {
 public:
  /// @throws UsageError  num_classes is less than 2.
  explicit Accuracy(const ClassOptions& options = {});

  /// Adds the rows of `other`. Local.   @throws UsageError  options differ.
  void merge(const Accuracy& other) { merge_counts(other); }
  [[nodiscard]] double compute() const;  ///< local
  [[nodiscard]] double compute(const Group& group, SourceLocation where = SourceLocation::current()) const;
};

/// Of what was predicted to be of a class, the share that is.
class ACCEL_API Precision : public detail::ClassScore {
 public:
  /// @throws UsageError  options that make no sense, as kBinary of more than two classes; names the option.
  explicit Precision(const ClassScoreOptions& options = {});

  /// Adds the rows of `other`. Local.   @throws UsageError  options differ.
  void merge(const Precision& other) { merge_counts(other); }
};

/// Of what is of a class, the share that was predicted to be.
class ACCEL_API Recall : public detail::ClassScore {
 public:
  /// @throws UsageError  options that make no sense, as kBinary of more than two classes; names the option.
  explicit Recall(const ClassScoreOptions& options = {});

  /// Adds the rows of `other`. Local.   @throws UsageError  options differ.
  void merge(const Recall& other) { merge_counts(other); }
};

/// The harmonic mean of precision and recall: 2 right / (predicted + referred).
class ACCEL_API F1 : public detail::ClassScore {
 public:
  /// @throws UsageError  options that make no sense, as kBinary of more than two classes; names the option.
  explicit F1(const ClassScoreOptions& options = {});

  /// Adds the rows of `other`. Local.   @throws UsageError  options differ.
  void merge(const F1& other) { merge_counts(other); }
};

/// The correlation of predicted and true classes, in [-1, 1]; 0 where predictions or references are all of one class,
/// as scikit-learn has it.
///
/// Source: Gorodkin, Comparing two K-category assignments by a K-category correlation coefficient, 2004; of two classes
/// Matthews, Comparison of the predicted and observed secondary structure of T4 phage lysozyme, 1975.
class ACCEL_API MatthewsCorrelation : public detail::ClassMetric {
 public:
  /// @throws UsageError  num_classes is less than 2.
  explicit MatthewsCorrelation(const ClassOptions& options = {});

  /// Adds the rows of `other`. Local.   @throws UsageError  options differ.
  void merge(const MatthewsCorrelation& other) { merge_counts(other); }
  [[nodiscard]] double compute() const;  ///< local
  [[nodiscard]] double compute(const Group& group, SourceLocation where = SourceLocation::current()) const;
};

/// How many rows there are of each pair of classes. Holds num_classes x num_classes counts.
class ACCEL_API ConfusionMatrix : public detail::ClassMetric {
 public:
  /// @throws UsageError  num_classes is less than 2.
  explicit ConfusionMatrix(const ClassOptions& options = {});

  /// Adds the rows of `other`. Local.   @throws UsageError  options differ.
  void merge(const ConfusionMatrix& other) { merge_counts(other); }
  /// [num_classes, num_classes], int64, CPU: row = reference, column = prediction; zeros where there is no row. Local.
  [[nodiscard]] at::Tensor compute() const;
  [[nodiscard]] at::Tensor compute(const Group& group, SourceLocation where = SourceLocation::current()) const;
};

}  // namespace accel::metrics
