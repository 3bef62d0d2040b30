// Workers, positions and random numbers of loaders.

#include <accel/data.hpp>
#include <accel/error.hpp>

#include "support/error_text.hpp"
#include "support/torch_doctest.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <iterator>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

using accel::DataLoader;
using accel::DataLoaderOptions;
using accel::DataLoaderState;
using accel::test::contains;
using accel::test::error_text;

namespace {

using Ids = std::vector<std::size_t>;

struct Numbers {
  std::size_t count = 0;
  [[nodiscard]] Ids get_batch(c10::ArrayRef<std::size_t> indices) const { return indices.vec(); }
  [[nodiscard]] std::size_t size() const { return count; }
};

accel::detail::LoaderBinding binding(int rank, int size) {
  return {.rank = rank, .size = size, .active = nullptr};
}

std::vector<Ids> all(const DataLoader<Ids>& loader) {
  std::vector<Ids> batches;
  for (auto& batch : loader) batches.push_back(batch);
  return batches;
}

Ids flat(const std::vector<Ids>& batches) {
  Ids ids;
  for (const Ids& batch : batches) ids.insert(ids.end(), batch.begin(), batch.end());
  return ids;
}

/// The first so many batches; the loop is left then.
std::vector<Ids> some(const DataLoader<Ids>& loader, std::size_t count) {
  std::vector<Ids> batches;
  for (auto& batch : loader) {
    batches.push_back(batch);
    if (batches.size() == count) break;
  }
  return batches;
}

std::ptrdiff_t threads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
}

/// Knows how many copies there are, and gates each read.
struct Counted {
  struct Shared {
    std::atomic<int> reads{0};
    std::atomic<int> copies{0};
  };
  std::shared_ptr<Shared> shared = std::make_shared<Shared>();

  Counted() = default;
  Counted(const Counted& other) : shared(other.shared) { ++shared->copies; }
  Counted(Counted&&) = default;
  Counted& operator=(const Counted&) = delete;
  Counted& operator=(Counted&&) = delete;
  ~Counted() = default;

  [[nodiscard]] Ids get_batch(c10::ArrayRef<std::size_t> indices) const {
    ++shared->reads;
    return indices.vec();
  }
  [[nodiscard]] std::size_t size() const { return 100; }
};

/// Each sample's number, and one drawn for it.
struct Noisy {
  [[nodiscard]] std::pair<std::size_t, at::Tensor> get(std::size_t index) const {
    return {index, at::rand({}, accel::data_generator(), at::kDouble)};
  }
  [[nodiscard]] std::size_t size() const { return 24; }
};

using Drawn = std::map<std::size_t, double>;

Drawn drawn(const DataLoaderOptions& options, int rank, int size) {
  const auto collate = [](std::vector<std::pair<std::size_t, at::Tensor>> samples) {
    Drawn numbers;
    for (const auto& [index, number] : samples) numbers[index] = number.item<double>();
    return numbers;
  };
  Drawn numbers;
  for (auto& batch : accel::make_data_loader(Noisy(), options, collate).bind(binding(rank, size)))
    numbers.insert(batch.begin(), batch.end());
  return numbers;
}

struct Failing {
  std::size_t at = 0;
  [[nodiscard]] std::size_t get(std::size_t index) const {
    if (index == at) throw std::runtime_error("torn page");
    return index;
  }
  [[nodiscard]] std::size_t size() const { return 20; }
};

const auto kIds = [](Ids samples) { return samples; };

}  // namespace

TEST_CASE("workers change neither order nor contents") {
  for (const std::size_t workers : {1, 2, 3}) {
    for (const std::size_t factor : {1, 4}) {
      const auto loader = accel::make_data_loader(
          Numbers{53}, {.batch_size = 4, .shuffle = true, .num_workers = workers, .prefetch_factor = factor});
      const auto plain = accel::make_data_loader(Numbers{53}, {.batch_size = 4, .shuffle = true});
      for (int epoch = 0; epoch < 3; ++epoch) CHECK(all(loader) == all(plain));
    }
  }
}

TEST_CASE("each worker reads from a copy of the data set, the program's thread from the given one") {
  Counted data;
  const auto shared = data.shared;
  const auto plain = accel::make_data_loader(std::move(data), {.batch_size = 10});
  const int before = shared->copies;
  for ([[maybe_unused]] auto& batch : plain) {
  }
  CHECK(shared->copies == before);
  CHECK(shared->reads == 10);

  Counted again;
  const auto counts = again.shared;
  const auto loader = accel::make_data_loader(std::move(again), {.batch_size = 10, .num_workers = 3});
  for ([[maybe_unused]] auto& batch : loader) {
  }
  CHECK(counts->copies == 3);
  CHECK(counts->reads == 10);
}

TEST_CASE("workers are no further ahead than num_workers x prefetch_factor") {
  Counted data;
  const auto shared = data.shared;
  const auto loader =
      accel::make_data_loader(std::move(data), {.batch_size = 1, .num_workers = 2, .prefetch_factor = 3});
  int taken = 0;
  for ([[maybe_unused]] auto& batch : loader) {
    ++taken;
    CHECK(shared->reads <= taken + 6);
  }
  CHECK(taken == 100);
}

TEST_CASE("a loop that is left early ends its workers, by break, return or exception") {
  const std::ptrdiff_t before = threads();
  const auto loader = accel::make_data_loader(Numbers{1000}, {.batch_size = 2, .shuffle = true, .num_workers = 3});
  for (int times = 0; times < 20; ++times) {
    for ([[maybe_unused]] auto& batch : loader) {
      if (times == 0) CHECK(threads() == before + 3);
      break;
    }
    CHECK(threads() == before);
    CHECK_THROWS_WITH(
        [&] {
          for ([[maybe_unused]] auto& batch : loader) throw std::runtime_error("in the loop");
        }(),
        "in the loop");
    CHECK(threads() == before);
  }
  (void)all(loader);
  CHECK(threads() == before);
}

TEST_CASE("an exception in a data set names the sample, comes in its place, and ends the pass and its workers") {
  const std::ptrdiff_t before = threads();
  for (const std::size_t workers : {0, 1, 3}) {
    const auto loader =
        accel::make_data_loader(Failing{13}, {.batch_size = 4, .num_workers = workers, .prefetch_factor = 4}, kIds);
    loader.set_epoch(2);
    std::vector<Ids> seen;
    const auto read = [&] {
      for (auto& batch : loader) seen.push_back(batch);
    };
    const std::string text = error_text<accel::DataError>(read);
    CHECK(text == "accel[0/1] DataLoader: expected to read sample 13 in epoch 2, found: torn page");
    CHECK(flat(seen) == Ids{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
    CHECK(threads() == before);
    try {
      read();
    } catch (const accel::DataError& error) {
      CHECK_THROWS_WITH_AS(std::rethrow_if_nested(error), "torn page", std::runtime_error);
    }
  }
}

TEST_CASE("an exception in collate, and one that is no std::exception, come to the caller with the samples") {
  for (const std::size_t workers : {0, 2}) {
    const auto collate = [](Ids samples) -> Ids {
      if (samples.front() == 4) throw 7;
      return samples;
    };
    const auto loader = accel::make_data_loader(Failing{99}, {.batch_size = 2, .num_workers = workers}, collate);
    const std::string text = error_text<accel::DataError>([&] { (void)all(loader); });
    CHECK(contains(text, "expected to read sample 4 in epoch 0, found: an exception that is no std::exception"));
  }
}

TEST_CASE("case 20: a pass that was left is gone on with in the order of its epoch") {
  const DataLoaderOptions options{.batch_size = 4, .shuffle = true, .seed = 7, .num_workers = 2};
  const auto reference = accel::make_data_loader(Numbers{64}, options);
  const Ids zeroth = flat(all(reference));
  const Ids first = flat(all(reference));
  const Ids second = flat(all(reference));

  const auto loader = accel::make_data_loader(Numbers{64}, options);
  (void)all(loader);
  const Ids before = flat(some(loader, 5));
  const DataLoaderState state = loader.state_dict();
  CHECK(state == DataLoaderState{.epoch = 1, .batches = 5, .samples = 20, .seed = 7});

  const auto resumed = accel::make_data_loader(Numbers{64}, options);
  resumed.load_state_dict(state);
  CHECK(resumed.size() == 11);
  Ids together = before;
  const Ids rest = flat(all(resumed));
  together.insert(together.end(), rest.begin(), rest.end());
  CHECK(together == first);
  CHECK(flat(all(resumed)) == second);
  CHECK(first != zeroth);
}

TEST_CASE("case 21: the end of an epoch is a position too, and the next epoch follows") {
  const DataLoaderOptions options{.batch_size = 4, .shuffle = true, .seed = 7};
  const auto reference = accel::make_data_loader(Numbers{30}, options);
  std::vector<Ids> epochs;
  for (int epoch = 0; epoch < 4; ++epoch) epochs.push_back(flat(all(reference)));

  const auto loader = accel::make_data_loader(Numbers{30}, options);
  for (int epoch = 0; epoch < 3; ++epoch) (void)all(loader);
  CHECK(loader.state_dict() == DataLoaderState{.epoch = 3, .batches = 0, .samples = 0, .seed = 7});
  // The seed is in the state: the loader may have been made with another one.
  const auto other = accel::make_data_loader(Numbers{30}, {.batch_size = 4, .shuffle = true, .seed = 99});
  other.load_state_dict(loader.state_dict());
  CHECK(flat(all(other)) == epochs[3]);
  CHECK(epochs[3] != epochs[0]);
}

TEST_CASE("case 22: skip_first_batches keeps the epoch, and holds for one pass") {
  const DataLoaderOptions options{.batch_size = 4, .shuffle = true, .seed = 5};
  const auto reference = accel::make_data_loader(Numbers{30}, options);
  (void)all(reference);
  const auto epoch_one = all(reference);
  const auto epoch_two = all(reference);

  const auto loader = accel::make_data_loader(Numbers{30}, options);
  loader.set_epoch(1);
  const auto skipping = accel::skip_first_batches(loader, 3);
  CHECK(skipping.size() == 5);
  CHECK(all(skipping) == std::vector<Ids>(epoch_one.begin() + 3, epoch_one.end()));
  CHECK(skipping.epoch() == 1);
  CHECK(skipping.size() == 8);
  CHECK(all(skipping) == epoch_two);
  CHECK(all(accel::skip_first_batches(loader, 100)).empty());
  CHECK(contains(error_text<accel::UsageError>([&] { (void)accel::skip_first_batches(loader, -1); }), "found -1"));
}

TEST_CASE("case 25, case 26: the position is what was handed out, not what workers read ahead") {
  for (const std::size_t workers : {0, 2}) {
    const DataLoaderOptions options{.batch_size = 2, .num_workers = workers, .prefetch_factor = 4};
    for (int rank = 0; rank < 2; ++rank) {
      const auto loader = accel::make_data_loader(Numbers{40}, options).bind(binding(rank, 2));
      (void)some(loader, 3);
      const auto resumed = accel::make_data_loader(Numbers{40}, options).bind(binding(rank, 2));
      resumed.load_state_dict(loader.state_dict());
      const Ids first = some(resumed, 1).front();
      CHECK(first == (rank == 0 ? Ids{12, 13} : Ids{14, 15}));
      // Read ahead or not: the loader that was left stands there as well.
      loader.load_state_dict(loader.state_dict());
      CHECK(some(loader, 1).front() == first);
    }
  }
}

TEST_CASE("a state that does not fit is refused, and the loader stays where it was") {
  const auto loader = accel::make_data_loader(Numbers{10}, {.batch_size = 2, .seed = 3});
  (void)some(loader, 2);
  const DataLoaderState before = loader.state_dict();
  CHECK(contains(error_text<accel::UsageError>([&] { loader.load_state_dict({.samples = 11}); }),
                 "expected at most 10 samples, which is what an epoch has, found 11"));
  CHECK(contains(error_text<accel::UsageError>([&] { loader.load_state_dict({.epoch = -1}); }), "found -1, 0 and 0"));
  CHECK(loader.state_dict() == before);
}

TEST_CASE("case 29: ranks draw different numbers, and read one order") {
  const DataLoaderOptions options{.batch_size = 3, .shuffle = true, .seed = 9};
  const Drawn alone = drawn(options, 0, 1);
  CHECK(alone.size() == 24);
  std::set<double> different;
  for (const auto& [index, number] : alone) different.insert(number);
  CHECK(different.size() == 24);

  Drawn together;
  for (int rank = 0; rank < 2; ++rank)
    for (const auto& each : drawn(options, rank, 2)) together.insert(each);
  // A batch's numbers belong to its place in the order, whoever reads it; two ranks' batches are those of one.
  CHECK(together == alone);
  DataLoaderOptions with_workers = options;
  with_workers.num_workers = 3;
  CHECK(drawn(with_workers, 0, 1) == alone);
  DataLoaderOptions other_seed = options;
  other_seed.seed = 10;
  CHECK(drawn(other_seed, 0, 1) != alone);
}

TEST_CASE("case 32: split_batches and dispatch_batches have the length that they yield") {
  const auto split = accel::make_data_loader(Numbers{100}, {.batch_size = 10, .split_batches = true});
  CHECK(split.bind(binding(0, 2)).size() == 10);
  CHECK(all(split.bind(binding(1, 2))).size() == 10);
  CHECK(all(split.bind(binding(1, 2))).front() == Ids{5, 6, 7, 8, 9});
  const auto dispatched = accel::make_data_loader(Numbers{100}, {.batch_size = 10, .dispatch_batches = true});
  CHECK(dispatched.bind(binding(0, 2)).size() == 5);
  CHECK(dispatched.bind(binding(1, 2)).size() == 5);
  const auto both =
      accel::make_data_loader(Numbers{100}, {.batch_size = 10, .split_batches = true, .dispatch_batches = true});
  CHECK(both.bind(binding(1, 2)).size() == 10);
}

TEST_CASE("case 33: a batch that the ranks cannot split names both numbers") {
  const auto loader = accel::make_data_loader(Numbers{100}, {.batch_size = 8, .split_batches = true});
  const std::string text = error_text<accel::UsageError>([&] { (void)loader.bind(binding(1, 3)); });
  CHECK(contains(text, "accel[1/3] prepare: expected a batch_size that 3 ranks can split, found 8"));
}

TEST_CASE("case 40: nothing is yielded of nothing, with workers too") {
  const std::ptrdiff_t before = threads();
  for (const std::size_t workers : {0, 2}) {
    const auto loader = accel::make_data_loader(Numbers{0}, {.batch_size = 2, .num_workers = workers});
    CHECK(all(loader).empty());
    CHECK(loader.size() == 0);
    CHECK(all(loader.bind(binding(1, 2))).empty());
  }
  CHECK(threads() == before);
}
