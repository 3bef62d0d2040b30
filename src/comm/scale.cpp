#include "comm/scale.hpp"

#include <cmath>

namespace accel::detail {
namespace {

// Dividing by a power of two is multiplying by its inverse, bit for bit, and a multiplication costs less.
bool divides(double factor, int ranks) {
  return factor == 1.0 && (ranks & (ranks - 1)) != 0;
}

template <class T>
void scale_as(T* data, std::int64_t numel, double factor, int ranks) {
  if (divides(factor, ranks)) {
    const T divisor = static_cast<T>(ranks);
    for (std::int64_t i = 0; i < numel; ++i) data[i] /= divisor;
  } else {
    const T multiplier = static_cast<T>(factor / ranks);
    for (std::int64_t i = 0; i < numel; ++i) data[i] *= multiplier;
  }
}

template <class T>
void add_and_scale_as(T* __restrict into, const T* __restrict from, std::int64_t numel, double factor, int ranks) {
  if (divides(factor, ranks)) {
    const T divisor = static_cast<T>(ranks);
    for (std::int64_t i = 0; i < numel; ++i) into[i] = (into[i] + from[i]) / divisor;
  } else {
    const T multiplier = static_cast<T>(factor / ranks);
    for (std::int64_t i = 0; i < numel; ++i) into[i] = (into[i] + from[i]) * multiplier;
  }
}

}  // namespace

void scale(void* data, std::int64_t numel, c10::ScalarType dtype, double factor, int ranks) {
  if (dtype == c10::ScalarType::Double)
    scale_as(static_cast<double*>(data), numel, factor, ranks);
  else
    scale_as(static_cast<float*>(data), numel, factor, ranks);
}

void add_and_scale(void* into, const void* from, std::int64_t numel, c10::ScalarType dtype, double factor, int ranks) {
  if (dtype == c10::ScalarType::Double)
    add_and_scale_as(static_cast<double*>(into), static_cast<const double*>(from), numel, factor, ranks);
  else
    add_and_scale_as(static_cast<float*>(into), static_cast<const float*>(from), numel, factor, ranks);
}

}  // namespace accel::detail
