#pragma once

#include <accel/collectives.hpp>

#include <c10/core/ScalarType.h>

namespace accel::detail {

inline bool is_half(c10::ScalarType dtype) {
  return dtype == c10::ScalarType::Half || dtype == c10::ScalarType::BFloat16;
}

/// A reduction of one buffer: op over ranks, then `factor` (kAvg: and 1/ranks) applied while the piece is in cache.
struct Reduction {
  c10::ScalarType dtype = c10::ScalarType::Float;
  ReduceOp op = ReduceOp::kSum;
  double factor = 1.0;

  [[nodiscard]] bool scales() const { return op == ReduceOp::kAvg || factor != 1.0; }
  [[nodiscard]] bool sums() const { return op == ReduceOp::kAvg || op == ReduceOp::kSum; }
};

}  // namespace accel::detail
