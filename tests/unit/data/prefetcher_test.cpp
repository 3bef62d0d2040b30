// The threads of a loader, over a data set without tensors. Compiled a second time under ThreadSanitizer, together with
// prefetcher.cpp, for which LibTorch stays out.

#include <accel/prefetcher.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

using accel::detail::Parcel;
using accel::detail::Prefetcher;
using accel::detail::PrefetchStages;

namespace {

constexpr int kSchedules = 400;

/// The squares of 0 .. count - 1. `next` and each worker write memory of their own that is not locked: what the
/// prefetcher orders wrongly is a race.
struct Squares {
  Squares(std::size_t items, std::size_t workers) : count(items), made(workers, 0) {}

  PrefetchStages stages() {
    return {.next = [this]() -> Parcel {
              pause(claimed);
              if (claimed == fails_at_next) throw std::runtime_error("next");
              return claimed < count ? std::make_shared<std::size_t>(claimed++) : nullptr;
            },
            .make = [this](std::size_t worker, const Parcel& claim) -> Parcel {
              const std::size_t number = *std::static_pointer_cast<std::size_t>(claim);
              pause(number * 7);
              if (number == fails_at_make) throw std::runtime_error("make");
              ++made.at(worker);
              return std::make_shared<std::size_t>(number * number);
            }};
  }

  // Threads take turns in ever other orders; nobody waits for a time.
  void pause(std::size_t number) const {
    for (std::uint64_t turn = (number * 2654435761U + seed) % 5; turn > 0; --turn) std::this_thread::yield();
  }

  static constexpr std::size_t kNever = ~std::size_t{0};
  std::size_t count;
  std::size_t claimed = 0;
  std::vector<std::size_t> made;
  std::size_t fails_at_next = kNever;
  std::size_t fails_at_make = kNever;
  std::uint64_t seed = 0;
};

std::size_t value(const Parcel& parcel) {
  return *std::static_pointer_cast<std::size_t>(parcel);
}

}  // namespace

TEST_CASE("results come in order, each once, whatever the threads do") {
  std::mt19937_64 draws(3);
  for (int schedule = 0; schedule < kSchedules; ++schedule) {
    const std::size_t workers = 1 + draws() % 4;
    Squares squares(draws() % 40, workers);
    squares.seed = draws();
    {
      Prefetcher prefetcher(squares.stages(), workers, workers * (1 + draws() % 3));
      for (std::size_t number = 0; number < squares.count; ++number) {
        const Parcel parcel = prefetcher.take();
        REQUIRE(parcel != nullptr);
        CHECK(value(parcel) == number * number);
      }
      CHECK(prefetcher.take() == nullptr);
      CHECK(prefetcher.take() == nullptr);
    }
    std::size_t made = 0;
    for (const std::size_t each : squares.made) made += each;
    CHECK(made == squares.count);
  }
}

TEST_CASE("a consumer that leaves early ends the threads, wherever they are") {
  std::mt19937_64 draws(4);
  for (int schedule = 0; schedule < kSchedules; ++schedule) {
    const std::size_t workers = 1 + draws() % 4;
    const std::size_t ahead = workers * (1 + draws() % 3);
    Squares squares(1000, workers);
    squares.seed = draws();
    const std::size_t taken = draws() % 20;
    {
      Prefetcher prefetcher(squares.stages(), workers, ahead);
      for (std::size_t number = 0; number < taken; ++number) CHECK(value(prefetcher.take()) == number * number);
    }
    CHECK(squares.claimed >= taken);
    CHECK(squares.claimed <= taken + ahead);
  }
}

TEST_CASE("what a stage throws comes in its place, after the results before it, and is the last thing") {
  std::mt19937_64 draws(5);
  for (int schedule = 0; schedule < kSchedules; ++schedule) {
    const std::size_t workers = 1 + draws() % 4;
    Squares squares(40, workers);
    squares.seed = draws();
    const std::size_t failing = draws() % 40;
    const bool in_next = draws() % 2 == 0;
    (in_next ? squares.fails_at_next : squares.fails_at_make) = failing;
    Prefetcher prefetcher(squares.stages(), workers, workers * 2);
    for (std::size_t number = 0; number < failing; ++number) CHECK(value(prefetcher.take()) == number * number);
    CHECK_THROWS_WITH_AS((void)prefetcher.take(), in_next ? "next" : "make", std::runtime_error);
    CHECK(prefetcher.take() == nullptr);
  }
}
