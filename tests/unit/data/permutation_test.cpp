#include "data/permutation.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

using accel::detail::permutation;

TEST_CASE("a permutation holds every number once and depends on seed and stream alone") {
  const auto order = permutation(1000, 7, 3);
  CHECK(permutation(1000, 7, 3) == order);
  CHECK(permutation(1000, 7, 4) != order);
  CHECK(permutation(1000, 8, 3) != order);
  auto sorted = order;
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::size_t> all(1000);
  std::iota(all.begin(), all.end(), std::size_t{0});
  CHECK(sorted == all);
  CHECK(permutation(0, 1, 1).empty());
  CHECK(permutation(1, 1, 1) == std::vector<std::size_t>{0});
}

TEST_CASE("the order is the same on every platform") {
  CHECK(permutation(10, 0, 0) == std::vector<std::size_t>{6, 1, 2, 4, 7, 5, 3, 0, 9, 8});
  CHECK(permutation(10, 42, 1) == std::vector<std::size_t>{2, 8, 7, 3, 6, 4, 0, 9, 5, 1});
}

TEST_CASE("all orders of three are about equally frequent") {
  std::map<std::vector<std::size_t>, int> counts;
  for (std::uint64_t seed = 0; seed < 6000; ++seed) ++counts[permutation(3, seed, 0)];
  CHECK(counts.size() == 6);
  // 1000 expected; five standard deviations are 144.
  for (const auto& [order, count] : counts) CHECK(std::abs(count - 1000) < 144);
}
