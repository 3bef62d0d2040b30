#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace accel::detail {

/// A seed that depends on both, unrelated to those of neighbouring values.
std::uint64_t mixed(std::uint64_t seed, std::uint64_t stream);

/// The numbers 0 .. count - 1 in an order that depends on `seed` and `stream` only: the same on every platform and with
/// every standard library, since std::shuffle and the standard distributions are not.
std::vector<std::size_t> permutation(std::size_t count, std::uint64_t seed, std::uint64_t stream);

}  // namespace accel::detail
