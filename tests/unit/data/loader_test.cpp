#include <accel/data.hpp>
#include <accel/error.hpp>

#include "support/error_text.hpp"
#include "support/torch_doctest.hpp"

#include <algorithm>
#include <numeric>
#include <ranges>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

using accel::DataLoader;
using accel::detail::ActiveLoaders;
using accel::detail::LoaderBinding;
using accel::test::error_text;

namespace {

using Ids = std::vector<std::size_t>;

// Batches that say which samples are in them.
struct Numbers {
  std::size_t count = 0;
  using BatchType = Ids;
  [[nodiscard]] Ids get_batch(c10::ArrayRef<std::size_t> indices) const { return indices.vec(); }
  [[nodiscard]] std::size_t size() const { return count; }
};

struct Failing : Numbers {
  [[nodiscard]] Ids get_batch(c10::ArrayRef<std::size_t> indices) const {
    if (indices[0] == 4) throw std::runtime_error("unreadable sample 4");
    return indices.vec();
  }
};

std::vector<Ids> all(const DataLoader<Ids>& loader) {
  std::vector<Ids> batches;
  for (auto& batch : loader) batches.push_back(batch);
  return batches;
}

Ids flat(const DataLoader<Ids>& loader) {
  Ids ids;
  for (auto& batch : loader) ids.insert(ids.end(), batch.begin(), batch.end());
  return ids;
}

LoaderBinding binding(int rank, int size, std::shared_ptr<ActiveLoaders> active = nullptr) {
  return {.rank = rank, .size = size, .active = std::move(active)};
}

// S where the accelerator would be told that a batch is the last one, . elsewhere.
std::string ends(const DataLoader<Ids>& loader, const ActiveLoaders& active) {
  std::string marks;
  for ([[maybe_unused]] auto& batch : loader) marks += active.at_end() ? 'S' : '.';
  return marks;
}

static_assert(std::ranges::input_range<DataLoader<Ids>>);
static_assert(std::input_iterator<DataLoader<Ids>::Iterator>);
static_assert(!std::copyable<DataLoader<Ids>::Iterator>);
static_assert(std::copyable<DataLoader<Ids>>);

}  // namespace

TEST_CASE("a loader yields batches in order, the last one short") {
  const auto loader = accel::make_data_loader(Numbers{5}, {.batch_size = 2});
  CHECK(all(loader) == std::vector<Ids>{{0, 1}, {2, 3}, {4}});
  CHECK(loader.size() == 3);
  CHECK(loader.samples() == 5);
}

TEST_CASE("size is what a rank really yields, in every mode") {
  for (const bool even : {true, false})
    for (const bool drop : {true, false})
      for (int rank = 0; rank < 2; ++rank) {
        const auto loader =
            accel::make_data_loader(Numbers{9}, {.batch_size = 2, .drop_last = drop, .even_batches = even})
                .bind(binding(rank, 2));
        CHECK(all(loader).size() == loader.size());
      }
  const auto uneven = accel::make_data_loader(Numbers{9}, {.batch_size = 2, .even_batches = false});
  CHECK(uneven.bind(binding(0, 2)).size() == 3);
  CHECK(uneven.bind(binding(1, 2)).size() == 2);
}

TEST_CASE("a bound loader reads the part of its rank") {
  const auto loader = accel::make_data_loader(Numbers{9}, {.batch_size = 2});
  CHECK(all(loader.bind(binding(0, 2))) == std::vector<Ids>{{0, 1}, {4, 5}, {8, 0}});
  CHECK(all(loader.bind(binding(1, 2))) == std::vector<Ids>{{2, 3}, {6, 7}, {1, 2}});
  CHECK(loader.bind(binding(1, 2)).remainder() == 1);
}

TEST_CASE("each pass is the next epoch, in another order, and each holds every sample") {
  const auto loader = accel::make_data_loader(Numbers{50}, {.batch_size = 8, .shuffle = true, .seed = 3});
  CHECK(loader.epoch() == 0);
  const Ids first = flat(loader);
  CHECK(loader.epoch() == 0);
  const Ids second = flat(loader);
  CHECK(loader.epoch() == 1);
  CHECK(first != second);
  CHECK(std::set<std::size_t>(first.begin(), first.end()).size() == 50);
  CHECK(std::set<std::size_t>(second.begin(), second.end()).size() == 50);
  CHECK(first.size() == 50);
}

TEST_CASE("set_epoch makes the next pass that epoch, whatever came before") {
  const accel::DataLoaderOptions options{.batch_size = 8, .shuffle = true, .seed = 3};
  const auto reference = accel::make_data_loader(Numbers{50}, options);
  (void)flat(reference);
  (void)flat(reference);
  const Ids third = flat(reference);

  auto other = accel::make_data_loader(Numbers{50}, options);
  other.set_epoch(2);
  CHECK(other.epoch() == 2);
  CHECK(flat(other) == third);
  CHECK(flat(other) == flat(reference));
  CHECK(other.epoch() == 3);
  CHECK(error_text<accel::UsageError>([&] { other.set_epoch(-1); }).find("found -1") != std::string::npos);
}

TEST_CASE("the order of samples does not depend on the number of ranks") {
  const auto loader = accel::make_data_loader(Numbers{48}, {.batch_size = 4, .shuffle = true, .seed = 11});
  const auto alone = all(loader);
  for (const int size : {2, 3, 4}) {
    std::vector<std::vector<Ids>> of_rank;
    for (int rank = 0; rank < size; ++rank) of_rank.push_back(all(loader.bind(binding(rank, size))));
    std::vector<Ids> dealt;
    // `loader` stands at epoch 1 only after its own pass; bound copies begin where it stood.
    auto again = accel::make_data_loader(Numbers{48}, {.batch_size = 4, .shuffle = true, .seed = 11});
    again.set_epoch(1);
    const auto expected = all(again);
    for (std::size_t step = 0; step < of_rank[0].size(); ++step)
      for (const auto& batches : of_rank) dealt.push_back(batches[step]);
    CHECK(dealt == expected);
    CHECK(dealt != alone);
  }
}

TEST_CASE("leaving a pass early still makes the next pass the next epoch") {
  const accel::DataLoaderOptions options{.batch_size = 4, .shuffle = true};
  const auto loader = accel::make_data_loader(Numbers{20}, options);
  for ([[maybe_unused]] auto& batch : loader) break;
  auto other = accel::make_data_loader(Numbers{20}, options);
  other.set_epoch(1);
  CHECK(flat(loader) == flat(other));
}

TEST_CASE("the accelerator knows the last batch when it is handed out") {
  const auto active = std::make_shared<ActiveLoaders>();
  const auto loader = accel::make_data_loader(Numbers{7}, {.batch_size = 2}).bind(binding(0, 1, active));
  CHECK(ends(loader, *active) == "...S");
  CHECK(active->empty());
  CHECK(ends(accel::make_data_loader(Numbers{1}).bind(binding(0, 1, active)), *active) == "S");
}

TEST_CASE("case 7: a whole evaluation pass inside a training loop leaves its end to the training loader") {
  const auto active = std::make_shared<ActiveLoaders>();
  const auto train = accel::make_data_loader(Numbers{8}).bind(binding(0, 1, active));
  const auto eval = accel::make_data_loader(Numbers{5}).bind(binding(0, 1, active));
  std::string marks;
  for (const auto& batch : train) {
    marks += active->at_end() ? 'S' : '.';
    if (batch[0] != 1) continue;
    CHECK(ends(eval, *active) == "....S");
    CHECK_FALSE(active->at_end());
  }
  CHECK(marks == ".......S");
  CHECK(active->empty());
}

TEST_CASE("case 8: a break out of an inner loader unregisters it, also on its last batch") {
  for (const std::size_t stop : {std::size_t{1}, std::size_t{4}}) {
    const auto active = std::make_shared<ActiveLoaders>();
    const auto train = accel::make_data_loader(Numbers{8}).bind(binding(0, 1, active));
    const auto eval = accel::make_data_loader(Numbers{5}).bind(binding(0, 1, active));
    std::string marks;
    for (const auto& batch : train) {
      marks += active->at_end() ? 'S' : '.';
      if (batch[0] != 1) continue;
      for (const auto& inner : eval)
        if (inner[0] == stop) break;
      CHECK_FALSE(active->at_end());
    }
    CHECK(marks == ".......S");
  }
}

TEST_CASE("an exception in the loop or in the data set unregisters the loader") {
  const auto active = std::make_shared<ActiveLoaders>();
  const auto loader = accel::make_data_loader(Numbers{8}).bind(binding(0, 1, active));
  const auto loop = [&] {
    for ([[maybe_unused]] auto& batch : loader) throw std::runtime_error("in the loop");
  };
  CHECK_THROWS_WITH(loop(), "in the loop");
  CHECK(active->empty());

  const auto failing = accel::make_data_loader(Failing{{8}}, {.batch_size = 2}).bind(binding(0, 1, active));
  std::size_t seen = 0;
  const auto read = [&] {
    for ([[maybe_unused]] auto& batch : failing) ++seen;
  };
  CHECK_THROWS_WITH_AS(read(),
                       "accel[0/1] DataLoader: expected to read sample 4 in epoch 0, found: unreadable sample 4",
                       accel::DataError);
  CHECK(seen == 2);
  CHECK(active->empty());
}

TEST_CASE("case 40: an empty loader yields nothing and is never seen by the accelerator") {
  const auto active = std::make_shared<ActiveLoaders>();
  const auto loader = accel::make_data_loader(Numbers{0}, {.batch_size = 2}).bind(binding(0, 2, active));
  CHECK(loader.size() == 0);
  CHECK(all(loader).empty());
  CHECK(active->empty());
}

TEST_CASE("iterators on the heap may end in any order") {
  const auto active = std::make_shared<ActiveLoaders>();
  const auto outer = accel::make_data_loader(Numbers{1}).bind(binding(0, 1, active));
  const auto inner = accel::make_data_loader(Numbers{2}).bind(binding(0, 1, active));
  auto first = std::make_unique<DataLoader<Ids>::Iterator>(outer.begin());
  auto second = std::make_unique<DataLoader<Ids>::Iterator>(inner.begin());
  CHECK_FALSE(active->at_end());
  first.reset();
  ++*second;
  CHECK(active->at_end());
  second.reset();
  CHECK(active->empty());
}

TEST_CASE("more ranks than batches is an error that names both, unless ranks may go without") {
  const auto loader = accel::make_data_loader(Numbers{5}, {.batch_size = 3});
  const std::string text = error_text<accel::UsageError>([&] { (void)loader.bind(binding(1, 4)); });
  CHECK(text.find("accel[1/4] prepare: expected at least 4 batches, one a rank, found 2 (5 samples, batch_size 3)") ==
        0);
  CHECK(text.find("even_batches = false") != std::string::npos);
  const auto dropping = accel::make_data_loader(Numbers{5}, {.batch_size = 3, .drop_last = true});
  CHECK(error_text<accel::UsageError>([&] { (void)dropping.bind(binding(0, 2)); }).find("found 1 (5 samples") !=
        std::string::npos);
  const auto uneven = accel::make_data_loader(Numbers{5}, {.batch_size = 3, .even_batches = false});
  CHECK(uneven.bind(binding(3, 4)).size() == 0);
}

TEST_CASE("a batch_size below one is an error that names it") {
  CHECK(error_text<accel::UsageError>([] {
          (void)accel::make_data_loader(Numbers{5}, {.batch_size = 0});
        }).find("make_data_loader: expected batch_size >= 1, found 0") != std::string::npos);
  CHECK(error_text<accel::UsageError>([] {
          (void)accel::make_data_loader(Numbers{5}, {.batch_size = -2});
        }).find("found -2") != std::string::npos);
}
