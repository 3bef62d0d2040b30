#pragma once

#include <accel/collectives.hpp>
#include <accel/source_location.hpp>

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

namespace accel::metrics::detail {

/// Who computes: this rank alone, or the ranks of a group. All results are worked out by one path.
struct MetricCall {
  std::string name;                       ///< as in "F1.compute"
  const Group* group = nullptr;           ///< none: local
  const SourceLocation* where = nullptr;  ///< of a collective call

  [[noreturn]] void fail(const std::string& text) const;

  /// Throws where this rank (local) or any rank (collective: on all of them) has a problem, or where descriptions of
  /// the metric differ between ranks.
  void check(const std::string& description, const std::string& problem) const;

  /// The sum over ranks of int64 counts; on the CPU. Equal shapes.
  [[nodiscard]] at::Tensor sum(const at::Tensor& counts) const;

  /// What the ranks have, put together in order of rank, which gives the same bits on all; on the CPU. Equal shapes.
  using Combine = std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>;
  [[nodiscard]] at::Tensor fold(const at::Tensor& mine, const Combine& combine) const;

  /// The rows of all ranks, in order of rank; on the CPU. Numbers of rows may differ.
  [[nodiscard]] at::Tensor rows(const at::Tensor& mine) const;
};

/// Shape and dtype, for the texts of errors.
std::string text_of(const at::Tensor& tensor);

/// Defined, of real numbers, and of one shape and device. @throws UsageError
void check_pair(const char* call, const char* first_name, const at::Tensor& first, const char* second_name,
                const at::Tensor& second);

/// Defined and of real numbers. @throws UsageError
void check_real(const char* call, const char* name, const at::Tensor& tensor);

}  // namespace accel::metrics::detail
