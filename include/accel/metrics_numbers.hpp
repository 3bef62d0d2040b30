#pragma once

#include <accel/collectives.hpp>
#include <accel/export.hpp>
#include <accel/source_location.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

/// Metrics of numbers: streaming, in float64, on the device that values come on; `update` does not wait for it.
///
/// `compute()` is local. `compute(group)` is collective: every rank of the group calls it, ranks without a value as
/// well. The ranks' parts are put together in the order of ranks, so that the result has the same bits on all of them;
/// it differs from that of one rank by roundings (relative 1e-12 and less for well-conditioned values). It changes
/// nothing, so that updates may go on. Both throw a UsageError where there is nothing to compute from, the collective
/// one on all ranks.
///
/// A NaN among the values makes the result NaN, as with scipy.
namespace accel::metrics {

namespace detail {
struct MetricCall;
}  // namespace detail

/// The weighted mean of a stream of numbers, as of losses. (RunningStatistics is the other thing: mean and variance of
/// each element of samples, kept by all ranks together, to normalise with.)
///
/// Source of the sums: Knuth, The Art of Computer Programming, volume 2, 4.2.2 (the error of a sum is kept beside it).
class ACCEL_API Mean {
 public:
  /// Takes values in, each with the same weight: `update(loss, batch_size)`. Local.
  /// @param values  any shape, any real dtype
  /// @throws UsageError  values are undefined or complex; the weight is negative or not finite. Nothing was taken in.
  void update(const at::Tensor& values, double weight = 1.0);
  void update(double value, double weight = 1.0);

  /// @param weights  of the shape and device of `values`, any real dtype, not negative (which is not checked)
  /// @throws UsageError  shapes or devices differ; complex or undefined tensors.
  void update(const at::Tensor& values, const at::Tensor& weights);

  void merge(const Mean& other);  ///< adds the values of `other`; local
  void reset();

  /// @throws UsageError  the weights sum to zero, as where there is no value.
  [[nodiscard]] double compute() const;
  [[nodiscard]] double compute(const Group& group, SourceLocation where = SourceLocation::current()) const;

 private:
  at::Tensor sums_;  // [2, 2]: sums and their errors, of weighted values and of weights
};

struct PerplexityOptions {
  std::int64_t ignore_index = -100;  ///< targets of this value are left out
};

/// exp(sum of negative log-likelihoods / number of tokens), in nats.
class ACCEL_API Perplexity {
 public:
  explicit Perplexity(const PerplexityOptions& options = {});

  /// Takes tokens in. Local.
  /// @param logits   [..., classes], floating. Logarithms of probabilities do as well: they are normalised already, and
  ///                 normalising changes nothing. 16-bit ones are normalised in float32.
  /// @param targets  [...], class indices of an integer dtype
  /// @throws UsageError  shapes, dtypes or devices do not fit; a target outside [0, classes), which names value and
  ///                     index (on an accelerator `compute` and `merge` tell it instead). Nothing was taken in.
  void update(const at::Tensor& logits, const at::Tensor& targets);

  /// Takes in what a loop has summed itself: with `cross_entropy`'s mean over n tokens, `update(loss * n, n)`.
  /// @param sum_nll  one element, any real dtype
  /// @throws UsageError  more than one element; tokens is negative.
  void update(const at::Tensor& sum_nll, std::int64_t tokens);
  void update(double sum_nll, std::int64_t tokens);

  /// Adds the tokens of `other`. Local.   @throws UsageError  options differ.
  void merge(const Perplexity& other);
  void reset();

  /// @throws UsageError  there is no token.
  [[nodiscard]] double compute() const;
  [[nodiscard]] double compute(const Group& group, SourceLocation where = SourceLocation::current()) const;

 private:
  [[nodiscard]] double score(const detail::MetricCall& call) const;
  [[nodiscard]] std::string description() const;
  [[nodiscard]] std::string problem() const;

  PerplexityOptions options_;
  std::int64_t updates_ = 0;
  at::Tensor sums_;   // as those of Mean, of negative log-likelihoods and of tokens
  at::Tensor fault_;  // the first target that was wrong (class_rows.hpp); undefined where updates tell at once
};

/// Pearson's correlation of pairs of numbers, in [-1, 1]; NaN where all predictions or all references are equal, as
/// with scipy.
///
/// Source: Chan, Golub and LeVeque, Updating Formulae and a Pairwise Algorithm for Computing Sample Variances, 1979.
class ACCEL_API Pearson {
 public:
  /// Takes pairs in. Local.
  /// @param predictions, references  of equal shape (any) and device, any real dtypes
  /// @throws UsageError  shapes or devices differ; complex or undefined tensors. Nothing was taken in.
  void update(const at::Tensor& predictions, const at::Tensor& references);

  void merge(const Pearson& other);  ///< adds the pairs of `other`; local
  void reset();

  /// @throws UsageError  there are fewer than two pairs.
  [[nodiscard]] double compute() const;
  [[nodiscard]] double compute(const Group& group, SourceLocation where = SourceLocation::current()) const;

 private:
  [[nodiscard]] double score(const detail::MetricCall& call) const;

  at::Tensor moments_;  // what correlation.cpp counts of pairs; undefined before the first
};

/// Spearman's rank correlation, in [-1, 1]: Pearson's of ranks, where equal values have the mean of their ranks. NaN
/// where all predictions or all references are equal, as with scipy.
///
/// Ranks are known when all values are, so it keeps them: 16 bytes a pair on the device of the updates, and
/// `compute(group)` brings those of all ranks to every rank.
///
/// Source: Spearman, The Proof and Measurement of Association between Two Things, 1904.
class ACCEL_API Spearman {
 public:
  /// As Pearson::update.
  void update(const at::Tensor& predictions, const at::Tensor& references);

  void merge(const Spearman& other);  ///< adds the pairs of `other`; local
  void reset();

  /// @throws UsageError  there are fewer than two pairs.
  [[nodiscard]] double compute() const;
  [[nodiscard]] double compute(const Group& group, SourceLocation where = SourceLocation::current()) const;

 private:
  [[nodiscard]] double score(const detail::MetricCall& call) const;

  std::vector<at::Tensor> pairs_;  // [n, 2], float64, never written after they are made
};

}  // namespace accel::metrics
