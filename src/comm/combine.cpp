#include "comm/combine.hpp"

#include "comm/half_convert.hpp"
#include "comm/scale.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <type_traits>

// Compiled for several processors, of which the one that is there is found out when the program starts. Sanitizers are
// not ready yet at that time.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define ACCEL_ALL_PROCESSORS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define ACCEL_ALL_PROCESSORS
#endif

namespace accel::detail {
namespace {

// What is combined at a time stays in the first cache until it is written out.
constexpr std::int64_t kBlockBytes = 8192;

ACCEL_ALL_PROCESSORS void add(float* __restrict sums, const float* __restrict values, std::int64_t numel) {
  for (std::int64_t i = 0; i < numel; ++i) sums[i] += values[i];
}
ACCEL_ALL_PROCESSORS void add(double* __restrict sums, const double* __restrict values, std::int64_t numel) {
  for (std::int64_t i = 0; i < numel; ++i) sums[i] += values[i];
}

// The commonest case in one pass: two ranks, each other's result. Powers of two divide by multiplying, bit for bit.
ACCEL_ALL_PROCESSORS void add_both(float* __restrict a, float* __restrict b, std::int64_t numel, float multiplier) {
  for (std::int64_t i = 0; i < numel; ++i) a[i] = b[i] = (a[i] + b[i]) * multiplier;
}
ACCEL_ALL_PROCESSORS void add_both(double* __restrict a, double* __restrict b, std::int64_t numel, double multiplier) {
  for (std::int64_t i = 0; i < numel; ++i) a[i] = b[i] = (a[i] + b[i]) * multiplier;
}
ACCEL_ALL_PROCESSORS void add_other(float* __restrict a, const float* __restrict b, std::int64_t numel,
                                    float multiplier) {
  for (std::int64_t i = 0; i < numel; ++i) a[i] = (a[i] + b[i]) * multiplier;
}
ACCEL_ALL_PROCESSORS void add_other(double* __restrict a, const double* __restrict b, std::int64_t numel,
                                    double multiplier) {
  for (std::int64_t i = 0; i < numel; ++i) a[i] = (a[i] + b[i]) * multiplier;
}

struct Bool {  // a byte that is 0 or 1
  std::uint8_t value;
};

template <class T>
constexpr bool kIsHalf = std::is_same_v<T, c10::Half> || std::is_same_v<T, c10::BFloat16>;
template <class T>
using Accumulator = std::conditional_t<kIsHalf<T>, float, T>;

// Integers wrap around, as they do in MPI.
template <class T, class F>
T wrapping(T a, T b, F f) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(f(static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(b)));
  else
    return f(a, b);
}

// NaN goes through, as in at::min and at::max.
template <class T>
bool keeps(T a, bool in_order) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(a) || in_order;
  return in_order;
}

template <class T>
void accumulate(T* __restrict sums, const T* __restrict values, std::int64_t numel, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      if constexpr (std::is_floating_point_v<T>)
        add(sums, values, numel);
      else
        for (std::int64_t i = 0; i < numel; ++i)
          sums[i] = wrapping(sums[i], values[i], [](auto a, auto b) { return a + b; });
      return;
    case ReduceOp::kProduct:
      for (std::int64_t i = 0; i < numel; ++i)
        sums[i] = wrapping(sums[i], values[i], [](auto a, auto b) { return a * b; });
      return;
    case ReduceOp::kMin:
      for (std::int64_t i = 0; i < numel; ++i) sums[i] = keeps(sums[i], sums[i] < values[i]) ? sums[i] : values[i];
      return;
    case ReduceOp::kMax:
      for (std::int64_t i = 0; i < numel; ++i) sums[i] = keeps(sums[i], sums[i] > values[i]) ? sums[i] : values[i];
      return;
  }
}

void accumulate(Bool* __restrict sums, const Bool* __restrict values, std::int64_t numel, ReduceOp op) {
  const bool any = op == ReduceOp::kSum || op == ReduceOp::kMax;
  for (std::int64_t i = 0; i < numel; ++i)
    sums[i].value = any ? sums[i].value | values[i].value : sums[i].value & values[i].value;
}

template <class T>
void load(Accumulator<T>* to, const T* from, std::int64_t numel) {
  if constexpr (kIsHalf<T>)
    widen(to, from, numel);
  else
    std::memcpy(to, from, static_cast<std::size_t>(numel) * sizeof(T));
}

template <class T>
void store(T* to, const Accumulator<T>* from, std::int64_t numel) {
  if constexpr (kIsHalf<T>)
    narrow(to, from, numel);
  else
    std::memcpy(to, from, static_cast<std::size_t>(numel) * sizeof(T));
}

template <class A>
void scale_block(A* data, std::int64_t numel, const Reduction& reduction, int ranks) {
  if constexpr (std::is_floating_point_v<A>)
    if (reduction.scales())
      scale(data, numel, std::is_same_v<A, double> ? c10::ScalarType::Double : c10::ScalarType::Float, reduction.factor,
            reduction.op == ReduceOp::kAvg ? ranks : 1);
}

template <class T>
T* typed(std::byte* data, std::int64_t first) {
  return reinterpret_cast<T*>(data) + first;
}

// Two inputs, sums of float32 or float64, and a scale that is one multiplication.
template <class T>
bool combine_two(Buffers inputs, Buffers outputs, std::int64_t numel, const Reduction& reduction, int ranks) {
  if constexpr (std::is_floating_point_v<T>) {
    const int divisor = reduction.op == ReduceOp::kAvg ? ranks : 1;
    if (inputs.size() != 2 || !reduction.sums() || (reduction.factor == 1.0 && (divisor & (divisor - 1)) != 0))
      return false;
    const T multiplier = static_cast<T>(reduction.factor / divisor);
    T* const a = typed<T>(inputs[0], 0);
    T* const b = typed<T>(inputs[1], 0);
    if (outputs.size() == 2 && outputs[0] == inputs[0] && outputs[1] == inputs[1])
      add_both(a, b, numel, multiplier);
    else if (outputs.size() == 1 && outputs[0] == inputs[0])
      add_other(a, b, numel, multiplier);
    else if (outputs.size() == 1 && outputs[0] == inputs[1])
      add_other(b, a, numel, multiplier);  // a sum of two is the same in either order
    else
      return false;
    return true;
  }
  return false;
}

/// Calls `block(accumulators, first, count)` with what the inputs hold combined, block by block.
template <class T, class Block>
void each_block(Buffers inputs, std::int64_t numel, ReduceOp op, Block block) {
  using A = Accumulator<T>;
  constexpr auto kBlock = static_cast<std::int64_t>(kBlockBytes / sizeof(A));
  alignas(64) std::array<A, kBlock> sums;
  alignas(64) std::array<A, kIsHalf<T> ? kBlock : 1> values;
  for (std::int64_t first = 0; first < numel; first += kBlock) {
    const std::int64_t count = std::min(kBlock, numel - first);
    load<T>(sums.data(), typed<T>(inputs[0], first), count);
    for (std::size_t input = 1; input < inputs.size(); ++input) {
      const T* const from = typed<T>(inputs[input], first);
      if constexpr (kIsHalf<T>) {
        load<T>(values.data(), from, count);
        accumulate(sums.data(), values.data(), count, op);
      } else {
        accumulate(sums.data(), from, count, op);
      }
    }
    block(sums.data(), first, count);
  }
}

/// Calls `function` with a value of the type that elements of `dtype` have.
template <class Function>
void with_type(c10::ScalarType dtype, Function function) {
  switch (dtype) {
    case c10::ScalarType::Double:
      return function(double());
    case c10::ScalarType::Float:
      return function(float());
    case c10::ScalarType::Half:
      return function(c10::Half());
    case c10::ScalarType::BFloat16:
      return function(c10::BFloat16());
    case c10::ScalarType::Long:
      return function(std::int64_t());
    case c10::ScalarType::Int:
      return function(std::int32_t());
    case c10::ScalarType::Short:
      return function(std::int16_t());
    case c10::ScalarType::Char:
      return function(std::int8_t());
    case c10::ScalarType::Byte:
      return function(std::uint8_t());
    case c10::ScalarType::Bool:
      return function(Bool());
    default:
      TORCH_INTERNAL_ASSERT(false, "dtype was not checked: ", c10::toString(dtype));
  }
}

}  // namespace

bool can_combine(c10::ScalarType dtype) {
  using c10::ScalarType;
  constexpr std::array kAll{ScalarType::Double, ScalarType::Float, ScalarType::Half,  ScalarType::BFloat16,
                            ScalarType::Long,   ScalarType::Int,   ScalarType::Short, ScalarType::Char,
                            ScalarType::Byte,   ScalarType::Bool};
  return std::find(kAll.begin(), kAll.end(), dtype) != kAll.end();
}

c10::ScalarType accumulator_of(c10::ScalarType dtype) {
  return is_half(dtype) ? c10::ScalarType::Float : dtype;
}

void combine(Buffers inputs, Buffers outputs, std::int64_t numel, const Reduction& reduction, int ranks) {
  with_type(reduction.dtype, [&](auto sample) {
    using T = decltype(sample);
    if (combine_two<T>(inputs, outputs, numel, reduction, ranks)) return;
    each_block<T>(inputs, numel, reduction.op, [&](Accumulator<T>* sums, std::int64_t first, std::int64_t count) {
      scale_block(sums, count, reduction, ranks);
      for (std::byte* const output : outputs) store<T>(typed<T>(output, first), sums, count);
    });
  });
}

void combine_partial(Buffers inputs, std::byte* partial, std::int64_t numel, const Reduction& reduction) {
  with_type(reduction.dtype, [&](auto sample) {
    using T = decltype(sample);
    using A = Accumulator<T>;
    each_block<T>(inputs, numel, reduction.op, [&](const A* sums, std::int64_t first, std::int64_t count) {
      std::memcpy(typed<A>(partial, first), sums, static_cast<std::size_t>(count) * sizeof(A));
    });
  });
}

void write_out(std::byte* partial, Buffers outputs, std::int64_t numel, const Reduction& reduction, int ranks) {
  with_type(reduction.dtype, [&](auto sample) {
    using T = decltype(sample);
    auto* const sums = typed<Accumulator<T>>(partial, 0);
    scale_block(sums, numel, reduction, ranks);
    for (std::byte* const output : outputs) store<T>(typed<T>(output, 0), sums, numel);
  });
}

}  // namespace accel::detail
