#pragma once

#include <accel/collectives.hpp>
#include <accel/export.hpp>
#include <accel/source_location.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace torch::serialize {
class InputArchive;
class OutputArchive;
}  // namespace torch::serialize

namespace accel {

/// Mean and variance of a stream of samples, as a normaliser of observations or rewards needs them: those of all
/// samples of all ranks, each counted once, whatever rank saw it and however often ranks merged.
///
/// @code
/// accel::RunningStatistics statistics({kObservation});
/// for (...) { const auto x = statistics.normalize(observation); ...; statistics.update(observation.unsqueeze(0)); }
/// statistics.merge(accelerator.group());   // now all ranks know what all have seen
/// @endcode
/// `update` keeps samples aside; what `mean`, `variance`, `count` and `normalize` see changes in `merge` alone, so that
/// it is bitwise equal on all ranks at every moment, and a program behaves alike on one rank and on many. All sums are
/// float64 on the CPU.
///
/// Source: Chan, Golub and LeVeque, Updating Formulae and a Pairwise Algorithm for Computing Sample Variances, 1979.
class ACCEL_API RunningStatistics {
 public:
  /// @param shape  of one sample; empty: scalars.   @throws UsageError  a negative size.
  explicit RunningStatistics(std::vector<std::int64_t> shape = {});

  /// Takes samples of this rank in. Local.
  /// @param batch  [n, ...shape], n >= 0; any real dtype, any device
  /// @throws UsageError  another shape; a complex dtype; a value that is not finite (names its row). Nothing was taken.
  void update(const at::Tensor& batch);

  /// Makes what the ranks took in since the last merge part of the statistics of all of them. Collective; equal shapes.
  /// @throws UsageError  on all ranks: shapes differ.   @throws CommError  a peer is lost.
  void merge(const Group& group = world(), SourceLocation where = SourceLocation::current());

  [[nodiscard]] std::int64_t count() const { return merged_.count; }     ///< samples merged so far
  [[nodiscard]] std::int64_t pending() const { return pending_.count; }  ///< samples of this rank not yet merged

  [[nodiscard]] at::Tensor mean() const;      ///< [...shape], float64, CPU; zeros before the first sample
  [[nodiscard]] at::Tensor variance() const;  ///< of the population (divided by count); ones before the first sample
  [[nodiscard]] at::Tensor standard_deviation() const;

  /// (x - mean) / sqrt(variance + epsilon), in the dtype and on the device of `x`; before the first sample a copy of
  /// `x`.
  /// @param x     [..., ...shape], floating
  /// @param clip  limits the result to [-clip, clip]
  [[nodiscard]] at::Tensor normalize(const at::Tensor& x, double epsilon = 1e-8,
                                     std::optional<double> clip = std::nullopt) const;

  /// @throws UsageError  samples are pending: merge first. Then one rank's archive is that of all.
  void save(torch::serialize::OutputArchive& archive) const;
  /// Drops samples that are pending.
  /// @throws UsageError  the archive is of another shape or of something else; nothing was changed.
  void load(torch::serialize::InputArchive& archive);

 private:
  struct Moments {
    std::int64_t count = 0;
    at::Tensor mean;     // [k], float64
    at::Tensor squares;  // sum of squared distances from the mean
  };

  [[nodiscard]] Moments nothing() const;
  static void add(Moments& to, const Moments& more);
  void check_shapes(const Group& group, const SourceLocation& where) const;

  std::vector<std::int64_t> shape_;
  Moments merged_;
  Moments pending_;
};

/// `torch::save(statistics, path)`, `torch::load(statistics, path)`.
inline torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive,
                                                   const RunningStatistics& statistics) {
  statistics.save(archive);
  return archive;
}
inline torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive,
                                                  RunningStatistics& statistics) {
  statistics.load(archive);
  return archive;
}

}  // namespace accel
