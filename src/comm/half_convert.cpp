#include "comm/half_convert.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace accel::detail {
namespace {

template <class Half>
void widen_each(float* __restrict to, const Half* __restrict from, std::int64_t numel) {
  for (std::int64_t i = 0; i < numel; ++i) to[i] = static_cast<float>(from[i]);
}

template <class Half>
void narrow_each(Half* __restrict to, const float* __restrict from, std::int64_t numel) {
  for (std::int64_t i = 0; i < numel; ++i) to[i] = static_cast<Half>(from[i]);
}

#if defined(__x86_64__)
constexpr std::int64_t kLanes = 8;

// Every processor with AVX2 has these conversions, and compilers differ in whether they can be asked for the latter.
bool converts_float16() {
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
}

__attribute__((target("avx,f16c"))) std::int64_t widen_lanes(float* to, const c10::Half* from, std::int64_t numel) {
  std::int64_t i = 0;
  for (; i + kLanes <= numel; i += kLanes)
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  return i;
}

__attribute__((target("avx,f16c"))) std::int64_t narrow_lanes(c10::Half* to, const float* from, std::int64_t numel) {
  std::int64_t i = 0;
  for (; i + kLanes <= numel; i += kLanes)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  return i;
}
#else
bool converts_float16() {
  return false;
}
std::int64_t widen_lanes(float*, const c10::Half*, std::int64_t) {
  return 0;
}
std::int64_t narrow_lanes(c10::Half*, const float*, std::int64_t) {
  return 0;
}
#endif

}  // namespace

void widen(float* to, const c10::Half* from, std::int64_t numel) {
  const std::int64_t done = converts_float16() ? widen_lanes(to, from, numel) : 0;
  widen_each(to + done, from + done, numel - done);
}

void widen(float* to, const c10::BFloat16* from, std::int64_t numel) {
  widen_each(to, from, numel);
}

void narrow(c10::Half* to, const float* from, std::int64_t numel) {
  const std::int64_t done = converts_float16() ? narrow_lanes(to, from, numel) : 0;
  narrow_each(to + done, from + done, numel - done);
}

void narrow(c10::BFloat16* to, const float* from, std::int64_t numel) {
  narrow_each(to, from, numel);
}

}  // namespace accel::detail
