#include <accel/data.hpp>
#include <accel/error.hpp>

#include "support/torch_doctest.hpp"

#include <torch/data/dataloader.h>
#include <torch/data/datasets/base.h>
#include <torch/data/datasets/map.h>
#include <torch/data/samplers/sequential.h>
#include <torch/data/transforms/stack.h>

#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

using accel::ForeignLoader;
using accel::detail::ActiveLoaders;
using accel::detail::LoaderBinding;

namespace {

// Sample i: data [i, i], target i.
struct Counting : torch::data::datasets::Dataset<Counting> {
  explicit Counting(std::int64_t samples) : count(samples) {}
  torch::data::Example<> get(size_t index) override {
    return {at::full({2}, static_cast<double>(index)), at::tensor(static_cast<std::int64_t>(index))};
  }
  std::optional<size_t> size() const override { return static_cast<size_t>(count); }
  std::int64_t count;
};

using Stacked = torch::data::transforms::Stack<>;

// The squares of 1, 2 and 3, as values and not as references.
struct Squares {
  struct Iterator {
    at::Tensor operator*() const { return at::full({1}, at * at); }
    void operator++() { ++at; }
    bool operator!=(const Iterator& other) const { return at != other.at; }
    int at;
  };
  [[nodiscard]] Iterator begin() const { return {1}; }
  [[nodiscard]] Iterator end() const { return {4}; }
};

LoaderBinding binding(std::shared_ptr<ActiveLoaders> active, int size = 1) {
  return {.rank = 0, .size = size, .active = std::move(active)};
}

template <class Loader>
std::string ends(const Loader& loader, const ActiveLoaders& active) {
  std::string marks;
  for ([[maybe_unused]] auto& batch : loader) marks += active.at_end() ? 'S' : '.';
  return marks;
}

static_assert(accel::BatchRange<std::vector<int>>);
static_assert(accel::BatchRange<std::unique_ptr<std::list<int>>>);
static_assert(accel::BatchRange<std::list<int>*>);
static_assert(!accel::BatchRange<int>);
static_assert(!accel::BatchRange<std::unique_ptr<int>>);

}  // namespace

TEST_CASE("torch data sets and their map chains are taken by value and by reference") {
  auto mapped = Counting(5).map(Stacked());
  const auto loader = accel::make_data_loader(mapped, {.batch_size = 2});
  std::vector<std::int64_t> rows;
  for (auto& batch : loader) {
    CHECK(batch.data.dim() == 2);
    rows.push_back(batch.target.size(0));
  }
  CHECK(rows == std::vector<std::int64_t>{2, 2, 1});
  CHECK(accel::make_data_loader(Counting(7).map(Stacked()), {.batch_size = 2}).size() == 4);

  const auto plain = accel::make_data_loader(Counting(3), {.batch_size = 3});  // vectors of examples
  CHECK((*plain.begin()).at(2).target.item<std::int64_t>() == 2);
}

TEST_CASE("a torch loader is read one batch ahead, by unique_ptr, reference and pointer") {
  const auto active = std::make_shared<ActiveLoaders>();
  const auto make = [] {
    return torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
        Counting(7).map(Stacked()), torch::data::DataLoaderOptions().batch_size(2));
  };
  CHECK(ends(ForeignLoader(make(), binding(active)), *active) == "...S");
  auto torch_loader = make();
  const ForeignLoader by_reference(*torch_loader, binding(active));
  CHECK(ends(by_reference, *active) == "...S");
  CHECK(ends(by_reference, *active) == "...S");
  CHECK(ends(ForeignLoader(torch_loader.get(), binding(active)), *active) == "...S");
  CHECK(ends(ForeignLoader(torch_loader, binding(active)), *active) == "...S");
  CHECK(active->empty());
  double sum = 0;
  for (auto& batch : by_reference) sum += batch.data.sum().item<double>();
  CHECK(sum == 42.0);
}

TEST_CASE("a container is not changed by a pass, may be iterated again, and tells its size") {
  const auto active = std::make_shared<ActiveLoaders>();
  std::vector<std::vector<at::Tensor>> batches{{at::ones(2)}, {at::ones(3)}};
  const ForeignLoader loader(batches, binding(active));
  CHECK(loader.size() == 2);
  for (int pass = 0; pass < 2; ++pass) CHECK(ends(loader, *active) == ".S");
  CHECK(batches[0].at(0).numel() == 2);
  for (auto& batch : loader) CHECK(batch[0].is_same(batches[batch[0].size(0) == 2 ? 0 : 1][0]));
  for ([[maybe_unused]] auto& batch : loader) break;
  CHECK(active->empty());
}

TEST_CASE("a container given as an rvalue is kept, and an empty one yields nothing") {
  const auto active = std::make_shared<ActiveLoaders>();
  CHECK(ends(ForeignLoader(std::deque<at::Tensor>{at::ones(1), at::ones(1), at::ones(1)}, binding(active)), *active) ==
        "..S");
  CHECK(ends(ForeignLoader(std::list<at::Tensor>{}, binding(active)), *active).empty());
  CHECK(active->empty());
}

TEST_CASE("a range that makes its batches when they are looked at is one too") {
  const auto active = std::make_shared<ActiveLoaders>();
  double sum = 0;
  for (auto& batch : ForeignLoader(Squares{}, binding(active))) sum += batch.item<double>();
  CHECK(sum == 14.0);
}

TEST_CASE("a function is a loader that is called no more than one batch ahead") {
  const auto active = std::make_shared<ActiveLoaders>();
  int calls = 0;
  auto source = accel::pull([&]() -> std::optional<at::Tensor> {
    return ++calls % 4 == 0 ? std::nullopt : std::optional(at::full({1}, calls));
  });
  const ForeignLoader loader(source, binding(active));
  std::vector<int> calls_at;
  for ([[maybe_unused]] auto& batch : loader) calls_at.push_back(calls);
  CHECK(calls_at == std::vector<int>{2, 3, 4});
  CHECK(ends(loader, *active) == "..S");
  CHECK(calls == 8);
}

TEST_CASE("batches that can only be moved are moved") {
  const auto active = std::make_shared<ActiveLoaders>();
  int left = 3;
  auto source = accel::pull([&]() -> std::optional<std::array<int, 2>> {
    if (left == 0) return std::nullopt;
    return std::array<int, 2>{left--, 0};
  });
  CHECK(ends(ForeignLoader(std::move(source), binding(active)), *active) == "..S");
}

TEST_CASE("a null pointer to a loader is refused where it is given") {
  const std::unique_ptr<std::vector<int>> none;
  CHECK_THROWS_WITH_AS(ForeignLoader(std::shared_ptr<std::vector<int>>(), {}),
                       doctest::Contains("found a null pointer"), accel::UsageError);
  CHECK_THROWS_WITH_AS(ForeignLoader(none.get(), {}), doctest::Contains("found a null pointer"), accel::UsageError);
}

TEST_CASE("case 30: a foreign loader at several ranks must be declared sharded, and is then not sharded again") {
  const auto active = std::make_shared<ActiveLoaders>();
  std::vector<int> batches(6);
  std::string text;
  try {
    (void)ForeignLoader(batches, binding(active, 2));
  } catch (const accel::UsageError& e) {
    text = e.what();
  }
  CHECK(text.find("accel[0/2] prepare_loader: expected a loader that accel can shard") == 0);
  CHECK(text.find("all 2 ranks") != std::string::npos);
  CHECK(text.find("already_sharded") != std::string::npos);
  CHECK(ends(ForeignLoader(batches, binding(active, 2), {.already_sharded = true}), *active) == ".....S");
  CHECK_NOTHROW((void)ForeignLoader(batches, binding(active)).bind(binding(active)));
  CHECK_THROWS_AS((void)ForeignLoader(batches, binding(active)).bind(binding(active, 2)), accel::UsageError);
}
