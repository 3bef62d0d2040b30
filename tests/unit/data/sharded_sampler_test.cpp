#include "data/sharded_sampler.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using accel::detail::ShardedSampler;
using accel::detail::Sharding;

namespace {

using Batches = std::vector<std::vector<std::size_t>>;

Batches batches_of(Sharding sharding, int rank) {
  sharding.rank = rank;
  const ShardedSampler sampler(sharding);
  Batches batches;
  for (std::size_t index = 0; index < sampler.batches(); ++index) batches.push_back(sampler.batch(index));
  return batches;
}

std::size_t remainder_of(const Sharding& sharding) {
  return ShardedSampler(sharding).remainder();
}

}  // namespace

TEST_CASE("nine samples in batches of two on two ranks are completed from the beginning") {
  const Sharding sharding{.samples = 9, .batch_size = 2, .size = 2};
  CHECK(batches_of(sharding, 0) == Batches{{0, 1}, {4, 5}, {8, 0}});
  CHECK(batches_of(sharding, 1) == Batches{{2, 3}, {6, 7}, {1, 2}});
  CHECK(remainder_of(sharding) == 1);
}

TEST_CASE("ten samples: a rank without a batch in the last step gets one from the beginning") {
  const Sharding sharding{.samples = 10, .batch_size = 2, .size = 2};
  CHECK(batches_of(sharding, 0) == Batches{{0, 1}, {4, 5}, {8, 9}});
  CHECK(batches_of(sharding, 1) == Batches{{2, 3}, {6, 7}, {0, 1}});
  CHECK(remainder_of(sharding) == 2);
}

TEST_CASE("eleven samples: the short batch is filled up") {
  const Sharding sharding{.samples = 11, .batch_size = 2, .size = 2};
  CHECK(batches_of(sharding, 0) == Batches{{0, 1}, {4, 5}, {8, 9}});
  CHECK(batches_of(sharding, 1) == Batches{{2, 3}, {6, 7}, {10, 0}});
  CHECK(remainder_of(sharding) == 3);
}

TEST_CASE("seven samples give two steps") {
  const Sharding sharding{.samples = 7, .batch_size = 2, .size = 2};
  CHECK(batches_of(sharding, 0) == Batches{{0, 1}, {4, 5}});
  CHECK(batches_of(sharding, 1) == Batches{{2, 3}, {6, 0}});
  CHECK(remainder_of(sharding) == 3);
}

TEST_CASE("three samples give one step") {
  const Sharding sharding{.samples = 3, .batch_size = 2, .size = 2};
  CHECK(batches_of(sharding, 0) == Batches{{0, 1}});
  CHECK(batches_of(sharding, 1) == Batches{{2, 0}});
  CHECK(remainder_of(sharding) == 3);
}

TEST_CASE("data smaller than one batch is repeated until all batches are full") {
  const Sharding one{.samples = 1, .batch_size = 4, .size = 2};
  CHECK(batches_of(one, 0) == Batches{{0, 0, 0, 0}});
  CHECK(batches_of(one, 1) == Batches{{0, 0, 0, 0}});
  CHECK(remainder_of(one) == 1);

  const Sharding two{.samples = 2, .batch_size = 4, .size = 4};
  for (int rank = 0; rank < 4; ++rank) CHECK(batches_of(two, rank) == Batches{{0, 1, 0, 1}});
  CHECK(remainder_of(two) == 2);
}

TEST_CASE("drop_last leaves out a batch that not all ranks have") {
  const Sharding sharding{.samples = 9, .batch_size = 2, .size = 2, .drop_last = true};
  CHECK(batches_of(sharding, 0) == Batches{{0, 1}, {4, 5}});
  CHECK(batches_of(sharding, 1) == Batches{{2, 3}, {6, 7}});
  CHECK(remainder_of(sharding) == 0);

  const Sharding ten{.samples = 10, .batch_size = 2, .size = 2, .drop_last = true, .even_batches = false};
  CHECK(batches_of(ten, 0) == Batches{{0, 1}, {4, 5}});
  CHECK(batches_of(ten, 1) == Batches{{2, 3}, {6, 7}});
}

TEST_CASE("without even_batches each sample is seen once and ranks differ in their number of batches") {
  const Sharding sharding{.samples = 9, .batch_size = 2, .size = 2, .even_batches = false};
  CHECK(batches_of(sharding, 0) == Batches{{0, 1}, {4, 5}, {8}});
  CHECK(batches_of(sharding, 1) == Batches{{2, 3}, {6, 7}});
  CHECK(remainder_of(sharding) == 0);

  const Sharding two{.samples = 2, .batch_size = 4, .size = 4, .even_batches = false};
  CHECK(batches_of(two, 0) == Batches{{0, 1}});
  for (int rank = 1; rank < 4; ++rank) CHECK(batches_of(two, rank).empty());
}

TEST_CASE("case 41: data that divides evenly loses nothing and repeats nothing") {
  const Sharding sharding{.samples = 512, .batch_size = 16, .size = 2};
  CHECK(batches_of(sharding, 0).size() == 16);
  CHECK(batches_of(sharding, 1).size() == 16);
  CHECK(remainder_of(sharding) == 0);
  CHECK(batches_of(sharding, 1).back().back() == 511);
}

TEST_CASE("a hundred samples in batches of eight on three ranks take five steps") {
  const Sharding sharding{.samples = 100, .batch_size = 8, .size = 3};
  for (int rank = 0; rank < 3; ++rank) CHECK(batches_of(sharding, rank).size() == 5);
  CHECK(remainder_of(sharding) == 4);
  CHECK(batches_of(sharding, 0).back() == std::vector<std::size_t>{96, 97, 98, 99, 0, 1, 2, 3});
  CHECK(batches_of(sharding, 2).back() == std::vector<std::size_t>{12, 13, 14, 15, 16, 17, 18, 19});
}

TEST_CASE("case 42: real rows of all steps add up to the data") {
  // Steps of 9 samples, b=2, P=2 hold 4, 4 and 1 real rows; of 100, b=8, P=3, four of 24 and one of 4.
  CHECK(remainder_of({.samples = 9, .batch_size = 2, .size = 2}) + 2 * 4 == 9);
  CHECK(remainder_of({.samples = 100, .batch_size = 8, .size = 3}) + 4 * 24 == 100);
}

TEST_CASE("one rank keeps its short last batch: there is nothing to even out") {
  const Sharding sharding{.samples = 10, .batch_size = 4};
  CHECK(batches_of(sharding, 0) == Batches{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}});
  CHECK(remainder_of(sharding) == 0);
  CHECK(batches_of({.samples = 9, .batch_size = 5, .drop_last = true}, 0) == Batches{{0, 1, 2, 3, 4}});
}

TEST_CASE("case 40: empty data has no batches in any mode") {
  for (const bool even : {true, false})
    for (const bool drop : {true, false})
      CHECK(batches_of({.samples = 0, .batch_size = 2, .size = 2, .drop_last = drop, .even_batches = even}, 1).empty());
}

TEST_CASE("in every mode ranks together cover what the mode promises") {
  for (std::size_t samples = 1; samples <= 40; ++samples)
    for (std::size_t batch_size = 1; batch_size <= 5; ++batch_size)
      for (int size = 1; size <= 4; ++size) {
        std::vector<int> once(samples), at_least_once(samples);
        std::size_t steps = 0;
        for (int rank = 0; rank < size; ++rank) {
          for (const auto& batch :
               batches_of({.samples = samples, .batch_size = batch_size, .size = size, .even_batches = false}, rank))
            for (const auto at : batch) ++once[at];
          const Batches even = batches_of({.samples = samples, .batch_size = batch_size, .size = size}, rank);
          if (rank == 0) steps = even.size();
          CHECK(even.size() == steps);
          for (const auto& batch : even) {
            CHECK((size == 1 || batch.size() == batch_size));
            for (const auto at : batch) ++at_least_once[at];
          }
        }
        CHECK(once == std::vector<int>(samples, 1));
        for (const int count : at_least_once) CHECK(count >= 1);
      }
}
