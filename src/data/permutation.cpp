#include "data/permutation.hpp"

#include <limits>
#include <numeric>
#include <random>
#include <utility>

namespace accel::detail {
namespace {

// Neighbouring seeds and epochs must give unrelated generators (the finaliser of SplitMix64).
std::uint64_t mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15ULL;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

// Values of the generator beyond the last whole multiple of `bound` would favour small results.
std::uint64_t below(std::uint64_t bound, std::mt19937_64& random) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t limit = kMax - kMax % bound;
  std::uint64_t value = random();
  while (value >= limit) value = random();
  return value % bound;
}

}  // namespace

std::uint64_t mixed(std::uint64_t seed, std::uint64_t stream) {
  return mix(mix(seed) ^ stream);
}

std::vector<std::size_t> permutation(std::size_t count, std::uint64_t seed, std::uint64_t stream) {
  std::mt19937_64 random(mixed(seed, stream));
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t last = count; last > 1; --last) std::swap(order[last - 1], order[below(last, random)]);
  return order;
}

}  // namespace accel::detail
