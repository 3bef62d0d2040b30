#include "grad/bucket_layout.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <vector>

using accel::detail::Bucket;
using accel::detail::BucketLimits;
using accel::detail::layout_buckets;
using accel::detail::ParameterFacts;

namespace {

using Order = std::vector<std::size_t>;

// The parameters of each bucket, in order.
std::vector<Order> members(const std::vector<Bucket>& buckets) {
  std::vector<Order> all;
  for (const Bucket& bucket : buckets) {
    Order& members = all.emplace_back();
    for (const auto& slot : bucket.slots) members.push_back(slot.parameter);
  }
  return all;
}

std::vector<ParameterFacts> floats(const std::vector<std::int64_t>& numels) {
  std::vector<ParameterFacts> facts;
  for (const std::int64_t numel : numels) facts.push_back({numel, 4, 0});
  return facts;
}

// All that the contract of a layout says, whatever the parameters are.
void check_layout(const std::vector<ParameterFacts>& facts, const Order& order, const BucketLimits& limits) {
  const auto buckets = layout_buckets(facts, order, limits);
  std::vector<int> times(facts.size(), 0);
  std::vector<std::size_t> place(facts.size(), 0);
  for (std::size_t at = 0; at < order.size(); ++at) place[order[at]] = at;
  std::map<int, std::vector<const Bucket*>> of_kind;
  std::size_t first_ready = 0;
  for (const Bucket& bucket : buckets) {
    REQUIRE_FALSE(bucket.slots.empty());
    CHECK(place[bucket.slots.front().parameter] >= first_ready);
    first_ready = place[bucket.slots.front().parameter];
    std::int64_t offset = 0;
    std::size_t last = first_ready;
    for (const auto& slot : bucket.slots) {
      ++times[slot.parameter];
      CHECK(slot.offset == offset);
      CHECK(slot.numel == facts[slot.parameter].numel);
      CHECK(facts[slot.parameter].kind == bucket.kind);
      CHECK(place[slot.parameter] >= last);
      last = place[slot.parameter];
      offset += slot.numel;
    }
    CHECK(bucket.numel == offset);
    const std::int64_t itemsize = facts[bucket.slots.front().parameter].itemsize;
    auto& earlier = of_kind[bucket.kind];
    if (bucket.slots.size() > 1)
      CHECK(bucket.numel * itemsize <= (earlier.empty() ? limits.first_bytes : limits.bytes));
    // No bucket ends early: what follows it would not have fitted.
    if (!earlier.empty())
      CHECK((earlier.back()->numel + bucket.slots.front().numel) * itemsize >
            (earlier.size() == 1 ? limits.first_bytes : limits.bytes));
    earlier.push_back(&bucket);
  }
  for (std::size_t parameter = 0; parameter < facts.size(); ++parameter)
    CHECK(times[parameter] == std::count(order.begin(), order.end(), parameter));
}

}  // namespace

TEST_CASE("parameters fill a bucket up to its limit, without gaps, in the order given") {
  const auto facts = floats({10, 20, 30, 40, 50});
  const Order order{4, 3, 2, 1, 0};
  const auto buckets = layout_buckets(facts, order, {.first_bytes = 400, .bytes = 240});
  CHECK(members(buckets) == std::vector<Order>{{4, 3}, {2, 1, 0}});
  CHECK(buckets[0].numel == 90);
  CHECK(buckets[0].slots[0].offset == 0);
  CHECK(buckets[0].slots[1].offset == 50);
  CHECK(buckets[1].numel == 60);
  CHECK(buckets[1].slots[1].offset == 30);
  CHECK(buckets[1].slots[2].offset == 50);
}

TEST_CASE("the first bucket has a limit of its own, so that the first transfer starts early") {
  const auto facts = floats({1, 1, 1, 1, 1, 1, 1});
  const Order order{0, 1, 2, 3, 4, 5, 6};
  CHECK(members(layout_buckets(facts, order, {.first_bytes = 8, .bytes = 16})) ==
        std::vector<Order>{{0, 1}, {2, 3, 4, 5}, {6}});
}

TEST_CASE("a limit that is met exactly is kept, one byte less is not") {
  const auto facts = floats({2, 2});
  CHECK(layout_buckets(facts, Order{0, 1}, {.first_bytes = 16, .bytes = 16}).size() == 1);
  CHECK(layout_buckets(facts, Order{0, 1}, {.first_bytes = 15, .bytes = 16}).size() == 2);
}

TEST_CASE("a parameter above the limit has a bucket of its own, wherever it stands") {
  const BucketLimits limits{.first_bytes = 40, .bytes = 40};
  const auto facts = floats({1, 100, 1, 1, 100});
  CHECK(members(layout_buckets(facts, Order{0, 1, 2, 3, 4}, limits)) == std::vector<Order>{{0}, {1}, {2, 3}, {4}});
  CHECK(members(layout_buckets(facts, Order{1, 4, 0, 2, 3}, limits)) == std::vector<Order>{{1}, {4}, {0, 2, 3}});
}

TEST_CASE("kinds do not share a bucket, and each kind begins with the small limit") {
  std::vector<ParameterFacts> facts{{4, 4, 0}, {4, 8, 1}, {4, 4, 0}, {4, 8, 1}, {4, 4, 0}, {4, 8, 1}};
  const Order order{0, 1, 2, 3, 4, 5};
  const auto buckets = layout_buckets(facts, order, {.first_bytes = 32, .bytes = 64});
  CHECK(members(buckets) == std::vector<Order>{{0, 2}, {1}, {3, 5}, {4}});
  CHECK(buckets[0].kind == 0);
  CHECK(buckets[1].kind == 1);
}

TEST_CASE("what the order leaves out is in no bucket, and no parameters make no bucket") {
  const auto facts = floats({3, 3, 3});
  CHECK(members(layout_buckets(facts, Order{2}, {})) == std::vector<Order>{{2}});
  CHECK(layout_buckets(facts, Order{}, {}).empty());
  CHECK(layout_buckets({}, Order{}, {}).empty());
}

TEST_CASE("parameters without elements take no room and are in a bucket all the same") {
  const auto facts = floats({0, 5, 0, 5});
  const auto buckets = layout_buckets(facts, Order{0, 1, 2, 3}, {.first_bytes = 20, .bytes = 20});
  CHECK(members(buckets) == std::vector<Order>{{0, 1, 2}, {3}});
  CHECK(buckets[0].numel == 5);
  CHECK(buckets[0].slots[2].offset == 5);
  CHECK(layout_buckets(floats({0}), Order{0}, {}).size() == 1);
}

TEST_CASE("the defaults are 1 MiB, then 25 MiB") {
  const auto facts = floats(std::vector<std::int64_t>(110, 1 << 16));  // 256 KiB each
  Order order(facts.size());
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  const auto buckets = layout_buckets(facts, order, {});
  REQUIRE(buckets.size() == 3);
  CHECK(buckets[0].slots.size() == 4);
  CHECK(buckets[1].slots.size() == 100);
  CHECK(buckets[2].slots.size() == 6);
}

TEST_CASE("two thousand random layouts keep the contract") {
  std::mt19937 random(20);
  const auto up_to = [&](int limit) { return static_cast<int>(random() % static_cast<unsigned>(limit + 1)); };
  for (int trial = 0; trial < 2000; ++trial) {
    const std::vector<std::int64_t> itemsizes{4, 8, 2};
    std::vector<ParameterFacts> facts;
    for (int count = up_to(12); count > 0; --count) {
      const int kind = up_to(2);
      facts.push_back({up_to(9), itemsizes[static_cast<std::size_t>(kind)], kind});
    }
    Order order(facts.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    if (!order.empty() && up_to(3) == 0) order.pop_back();  // a frozen one
    check_layout(facts, order, {.first_bytes = 1 + up_to(40), .bytes = 1 + up_to(80)});
  }
}
