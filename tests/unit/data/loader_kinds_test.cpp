// The kinds of data set, of batches and of samplers that make_data_loader takes.

#include <accel/data.hpp>
#include <accel/error.hpp>

#include "support/error_text.hpp"
#include "support/torch_doctest.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <torch/data/datasets/base.h>
#include <torch/data/datasets/map.h>
#include <torch/data/datasets/stateful.h>
#include <torch/data/transforms/base.h>
#include <torch/data/transforms/lambda.h>
#include <torch/data/transforms/stack.h>

#include <list>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using accel::DataLoaderOptions;
using accel::test::contains;
using accel::test::error_text;

namespace {

using Ids = std::vector<std::size_t>;
using Example = torch::data::Example<>;
using Named = std::map<std::string, at::Tensor>;

struct Numbers {
  std::size_t count = 0;
  [[nodiscard]] Ids get_batch(c10::ArrayRef<std::size_t> indices) const { return indices.vec(); }
  [[nodiscard]] std::size_t size() const { return count; }
};

/// As programs write them.
struct Squares : torch::data::datasets::Dataset<Squares> {
  Example get(std::size_t index) override {
    const auto number = static_cast<double>(index);
    return {at::full({2}, number), at::full({}, number * number)};
  }
  [[nodiscard]] std::optional<std::size_t> size() const override { return 7; }
};

struct Words {
  [[nodiscard]] Named get(std::size_t index) const {
    return {{"input_ids", at::full({3}, static_cast<std::int64_t>(index))}, {"label", at::full({}, 1.0)}};
  }
  [[nodiscard]] std::size_t size() const { return 5; }
};

/// Gives the numbers from 0 on, `uneven` at a time at most, and ends after `end`.
struct Counting : torch::data::datasets::StatefulDataset<Counting, std::vector<int>, std::size_t> {
  explicit Counting(int last, std::size_t most = 1000) : end(last), uneven(most) {}
  std::optional<std::vector<int>> get_batch(std::size_t count) override {
    std::vector<int> numbers;
    while (next < end && numbers.size() < std::min(count, uneven)) numbers.push_back(next++);
    if (numbers.empty()) return std::nullopt;
    return numbers;
  }
  void reset() override { next = 0; }
  [[nodiscard]] std::optional<std::size_t> size() const override { return std::nullopt; }
  void save(torch::serialize::OutputArchive&) const override {}
  void load(torch::serialize::InputArchive&) override {}

  int end;
  std::size_t uneven;
  int next = 0;
};

struct Endless {
  [[nodiscard]] std::vector<int> get_batch(std::size_t count) const { return std::vector<int>(count, 1); }
};

accel::detail::LoaderBinding binding(int rank, int size) {
  return {.rank = rank, .size = size, .active = nullptr};
}

template <class Loader>
auto all(const Loader& loader) {
  std::vector<std::remove_cvref_t<decltype(*loader.begin())>> batches;
  for (auto& batch : loader) batches.push_back(batch);
  return batches;
}

}  // namespace

TEST_CASE("data sets of torch::data give vectors of examples, stacked with their transforms or with ours") {
  for (const std::size_t workers : {0, 2}) {
    const auto stacked = accel::make_data_loader(Squares().map(torch::data::transforms::Stack<>()),
                                                 {.batch_size = 3, .num_workers = workers});
    const auto batches = all(stacked);
    REQUIRE(batches.size() == 3);
    CHECK(batches[1].data.sizes() == at::IntArrayRef({3, 2}));
    CHECK(at::equal(batches[1].target, at::tensor({9.0F, 16.0F, 25.0F})));
    CHECK(batches[2].target.size(0) == 1);

    const auto bare = all(accel::make_data_loader(Squares(), {.batch_size = 3, .num_workers = workers}));
    REQUIRE(bare.size() == 3);
    CHECK(bare[0].size() == 3);
    const auto collated =
        all(accel::make_data_loader(Squares(), {.batch_size = 3, .num_workers = workers},
                                    [](std::vector<Example> samples) { return accel::stack(samples); }));
    CHECK(at::equal(collated[1].target, batches[1].target));
  }
}

TEST_CASE("samples that are maps become batches that are maps") {
  const auto batches = all(accel::make_data_loader(Words(), {.batch_size = 2}));
  REQUIRE(batches.size() == 3);
  CHECK(batches[0].at("input_ids").sizes() == at::IntArrayRef({2, 3}));
  CHECK(batches[1].at("input_ids")[1][0].item<std::int64_t>() == 3);
  CHECK(batches[2].at("label").sizes() == at::IntArrayRef({1}));
}

TEST_CASE("a range of samples is gone through once an epoch, stacked") {
  std::list<at::Tensor> samples;
  for (int number = 0; number < 5; ++number) samples.push_back(at::full({}, number));
  const auto loader = accel::make_data_loader(samples, {.batch_size = 2, .num_workers = 2});
  for (int epoch = 0; epoch < 2; ++epoch) {
    const auto batches = all(loader);
    REQUIRE(batches.size() == 3);
    CHECK(batches[1][1].item<double>() == 3.0);
    CHECK(batches[2].size(0) == 1);
  }
}

TEST_CASE("a stream is cut into batches, however much it gives at once, and begins again with each epoch") {
  for (const std::size_t workers : {0, 1, 3})
    for (const std::size_t uneven : {1, 3, 1000}) {
      const auto loader = accel::make_data_loader(Counting(11, uneven), {.batch_size = 4, .num_workers = workers});
      CHECK_FALSE(loader.has_size());
      for (int epoch = 0; epoch < 3; ++epoch)
        CHECK(all(loader) == std::vector<std::vector<int>>{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10}});
      const auto dropping =
          accel::make_data_loader(Counting(11, uneven), {.batch_size = 4, .drop_last = true, .num_workers = workers});
      CHECK(all(dropping).size() == 2);
    }
  CHECK(all(accel::make_data_loader(Counting(0), {.batch_size = 4})).empty());
  CHECK(contains(error_text<accel::UsageError>([] { (void)accel::make_data_loader(Counting(5)).size(); }),
                 "ask has_size()"));
}

TEST_CASE("a stream goes on where it was left") {
  const auto loader = accel::make_data_loader(Counting(20), {.batch_size = 3, .num_workers = 2});
  for ([[maybe_unused]] auto& batch : loader)
    if (batch.front() == 6) break;
  CHECK(loader.state_dict().samples == 9);
  const auto resumed = accel::make_data_loader(Counting(20), {.batch_size = 3});
  resumed.load_state_dict(loader.state_dict());
  CHECK(all(resumed).front() == std::vector<int>{9, 10, 11});
  CHECK(all(resumed).front() == std::vector<int>{0, 1, 2});
  CHECK(all(accel::skip_first_batches(resumed, 2)).front() == std::vector<int>{6, 7, 8});
}

TEST_CASE("epoch_size ends the epoch of a stream; one without an end needs it") {
  const auto loader = accel::make_data_loader(Endless(), {.batch_size = 4, .epoch_size = 10});
  CHECK(loader.size() == 3);
  CHECK(all(loader).back().size() == 2);
  CHECK(all(accel::make_data_loader(Counting(11), {.batch_size = 4, .epoch_size = 6})).size() == 2);
  CHECK(contains(error_text<accel::UsageError>([] { (void)accel::make_data_loader(Endless()); }), ".epoch_size"));
}

TEST_CASE("a sampler says which samples come, in which order, in each epoch") {
  const auto backwards = [](std::int64_t epoch) { return epoch == 0 ? Ids{4, 3, 2, 1, 0} : Ids{2, 2}; };
  const auto loader = accel::make_data_loader(Numbers{5}, {.batch_size = 2, .sampler = backwards});
  CHECK(loader.size() == 3);
  CHECK(all(loader) == std::vector<Ids>{{4, 3}, {2, 1}, {0}});
  CHECK(loader.size() == 1);
  CHECK(all(loader) == std::vector<Ids>{{2, 2}});
  const auto wrong = accel::make_data_loader(Numbers{2}, {.sampler = backwards});
  CHECK(contains(error_text<accel::UsageError>([&] { (void)all(wrong); }),
                 "expected indices below 2 from sampler, found 4 at position 0"));
}

TEST_CASE("a batch sampler forms the batches, which are dealt as they are") {
  const auto lengths = [](std::int64_t) { return std::vector<Ids>{{0, 1, 2}, {3}, {4, 5}, {6, 7}, {8}}; };
  const auto loader = accel::make_data_loader(Numbers{9}, {.batch_sampler = lengths});
  CHECK(all(loader) == lengths(0));
  CHECK(all(loader.bind(binding(0, 2))) == std::vector<Ids>{{0, 1, 2}, {4, 5}, {8}});
  CHECK(all(loader.bind(binding(1, 2))) == std::vector<Ids>{{3}, {6, 7}, {0, 1, 2}});
  (void)loader.begin();
  const auto uneven = accel::make_data_loader(Numbers{9}, {.even_batches = false, .batch_sampler = lengths});
  CHECK(all(uneven.bind(binding(1, 2))) == std::vector<Ids>{{3}, {6, 7}});
}

TEST_CASE("a custom collate makes batches of any type") {
  const auto sum = [](Ids ids) {
    std::size_t total = 0;
    for (const std::size_t id : ids) total += id;
    return total;
  };
  CHECK(all(accel::make_data_loader(Numbers{5}, {.batch_size = 2, .num_workers = 2}, sum)) == Ids{1, 5, 4});
}

TEST_CASE("options that contradict each other, or do not fit the data, are refused by name") {
  const auto sampler = [](std::int64_t) { return Ids{0}; };
  const auto batches = [](std::int64_t) { return std::vector<Ids>{{0}}; };
  const auto make = [](const DataLoaderOptions& options) {
    return error_text<accel::UsageError>([&] { (void)accel::make_data_loader(Numbers{5}, options); });
  };
  CHECK(contains(make({.shuffle = true, .sampler = sampler}), "expected shuffle or sampler, found both"));
  CHECK(contains(make({.batch_size = 2, .batch_sampler = batches}), "batch_sampler or batch_size"));
  CHECK(contains(make({.drop_last = true, .batch_sampler = batches}), "batch_sampler or drop_last"));
  CHECK(contains(make({.prefetch_factor = 0}), "prefetch_factor in 1..1024, found 0"));
  CHECK(contains(make({.num_workers = 5000}), "num_workers in 0..1024, found 5000"));
  CHECK(contains(make({.epoch_size = 3}), "expected no epoch_size for a data set with an index"));
  const auto shuffled =
      error_text<accel::UsageError>([] { (void)accel::make_data_loader(Counting(5), {.shuffle = true}); });
  CHECK(contains(shuffled, "expected no shuffle for a stream"));
}
