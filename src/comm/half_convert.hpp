#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>

namespace accel::detail {

// 16-bit floats to float32 and back, rounding to nearest even. Measured, 1 M float16 one way: 0.25 ms by the
// processor's own conversion, 2 to 4 ms element by element.

void widen(float* to, const c10::Half* from, std::int64_t numel);
void widen(float* to, const c10::BFloat16* from, std::int64_t numel);
void narrow(c10::Half* to, const float* from, std::int64_t numel);
void narrow(c10::BFloat16* to, const float* from, std::int64_t numel);

}  // namespace accel::detail
