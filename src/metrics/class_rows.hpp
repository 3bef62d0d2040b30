#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

namespace accel::metrics::detail {

/// Rows of predicted and true classes, flat.
struct ClassRows {
  at::Tensor predicted;  ///< [n], int64
  at::Tensor reference;  ///< [n], int64
  at::Tensor valid;      ///< [n], bool: neither ignored nor wrong
};

struct ClassRule {
  std::int64_t num_classes = 2;
  std::optional<std::int64_t> ignore_index;
  double threshold = 0.5;
};

/// Where and when rows that are wrong are told.
struct FaultLog {
  const char* call;     ///< as in "F1.update"
  std::int64_t update;  ///< which update this is, counted from 1
  bool at_once;         ///< throw here, which waits for the device; else keep the first fault in `first`
  at::Tensor& first;    ///< [5], int64, on the device: update (0: none), index, prediction, reference, num_classes
};

/// Whether it costs nothing to look at values of this tensor now.
bool told_at_once(const at::Tensor& tensor);

/// Takes predictions of any of the kinds of metrics_classes.hpp apart.
/// @throws UsageError  shapes, dtypes or devices do not fit, or a row is wrong and log.at_once.
ClassRows class_rows(const at::Tensor& predictions, const at::Tensor& references, const ClassRule& rule,
                     const FaultLog& log);

/// Which rows count, as ClassRows::valid. Those that are wrong and not ignored are faults.
at::Tensor valid_rows(const at::Tensor& predicted, const at::Tensor& reference, const ClassRule& rule,
                      const FaultLog& log);

/// What a kept fault says; empty where there is none. Waits for the device.
std::string fault_text(const at::Tensor& fault);

}  // namespace accel::metrics::detail
