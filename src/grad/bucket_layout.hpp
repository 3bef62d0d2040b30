#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace accel::detail {

/// What the layout needs to know of one parameter.
struct ParameterFacts {
  std::int64_t numel = 0;
  std::int64_t itemsize = 1;  ///< bytes
  int kind = 0;               ///< equal for parameters of one dtype and device: only these share a bucket
};

struct BucketLimits {
  std::int64_t first_bytes = std::int64_t{1} << 20;  ///< small, so that the first transfer starts early
  std::int64_t bytes = std::int64_t{25} << 20;
};

/// Parameters whose gradients travel together, in a flat buffer without gaps.
struct Bucket {
  struct Slot {
    std::size_t parameter = 0;
    std::int64_t offset = 0;  ///< elements from the start of the buffer
    std::int64_t numel = 0;
  };
  int kind = 0;
  std::int64_t numel = 0;
  std::vector<Slot> slots;
};

/// Packs the parameters named by `order` (the order in which gradients become ready) into buckets. A parameter larger
/// than the limit has a bucket of its own; buckets are listed in the order in which their first gradient is ready.
std::vector<Bucket> layout_buckets(std::span<const ParameterFacts> parameters, std::span<const std::size_t> order,
                                   const BucketLimits& limits);

}  // namespace accel::detail
