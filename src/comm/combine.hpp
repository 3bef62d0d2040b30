#pragma once

#include "comm/reduction.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace accel::detail {

using Buffers = std::span<std::byte* const>;

/// Combines `numel` elements of all inputs, in order of inputs, and writes the scaled result to all outputs. 16-bit
/// floats are combined in float32 and rounded once; bool is "or" (sum, max) and "and" (product, min).
/// @param inputs   at least one; each may also be an output, but none may lie across another
/// @param ranks    what kAvg divides by
void combine(Buffers inputs, Buffers outputs, std::int64_t numel, const Reduction& reduction, int ranks);

/// Whether there is a combination of elements of this dtype.
[[nodiscard]] bool can_combine(c10::ScalarType dtype);

/// The dtype in which elements are combined: float32 for 16-bit floats, else their own.
c10::ScalarType accumulator_of(c10::ScalarType dtype);

/// combine() in two steps, with something between them: the first leaves what is not yet scaled in `partial`, of dtype
/// accumulator_of(reduction.dtype); the second scales it, in place, and writes it out.
void combine_partial(Buffers inputs, std::byte* partial, std::int64_t numel, const Reduction& reduction);
void write_out(std::byte* partial, Buffers outputs, std::int64_t numel, const Reduction& reduction, int ranks);

}  // namespace accel::detail
