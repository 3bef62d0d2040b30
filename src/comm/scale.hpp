#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

namespace accel::detail {

/// `x = x / ranks * factor`, rounded once: a plain division where factor is 1, else one multiplication by
/// factor / ranks in the element's own precision. float32 and float64.
void scale(void* data, std::int64_t numel, c10::ScalarType dtype, double factor, int ranks);

/// Likewise `into = (into + from) / ranks * factor` with the sum rounded first, so that the bits are those of an
/// addition followed by `scale`.
void add_and_scale(void* into, const void* from, std::int64_t numel, c10::ScalarType dtype, double factor, int ranks);

}  // namespace accel::detail
