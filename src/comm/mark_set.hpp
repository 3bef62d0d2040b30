#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace accel::detail {

constexpr std::size_t kCacheLine = 64;
constexpr std::size_t up_to_line(std::size_t bytes) {
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

/// How long a rank that waits keeps its core: first busy, then offering it to others, then asleep.
struct WaitStyle {
  int spins = 0;
  int yields = 0;
};

/// Marks in shared memory by which the ranks of one host meet, once in a generation: generations are counted from 1 by
/// every rank for itself. Nothing is ever reset, so a late rank finds what it missed.
///
///   arrive(g)       this rank is there, and what it wrote before can be read by those who see it
///   all_arrived(g)  all are there
///   claim(g, n)     the next of n pieces of common work, each given out once; only after all_arrived(g)
///   piece_done(g)   a claimed piece is done
///   finished(g, n)  all pieces are
///
/// One mark a rank, not a counter, so that a rank that is missing can be named. Any thread of a rank may claim and
/// wait. The number of pieces is the same in all generations.
class MarkSet {
 public:
  [[nodiscard]] static std::size_t bytes(int ranks);

  MarkSet() = default;
  /// `memory`: zeros at first, on a cache line, the same for all ranks.
  MarkSet(std::byte* memory, int ranks, int rank);

  /// `wake`: those who sleep are woken if this was the last; without it they sleep until the work is finished.
  /// `what`: what this rank came for, for others to compare.
  void arrive(std::uint64_t generation, bool wake = true, std::uint64_t what = 0);
  [[nodiscard]] bool all_arrived(std::uint64_t generation) const;
  [[nodiscard]] std::optional<std::uint32_t> claim(std::uint64_t generation, std::uint32_t pieces);
  void piece_done(std::uint64_t generation, std::uint32_t pieces);
  [[nodiscard]] bool finished(std::uint64_t generation, std::uint32_t pieces) const;

  /// What a rank came for: after all_arrived(generation), and before this rank arrives again.
  [[nodiscard]] std::uint64_t came_for(int rank, std::uint64_t generation) const;

  /// A rank that has not arrived; nothing if all have.
  [[nodiscard]] std::optional<int> missing(std::uint64_t generation) const;
  /// How long ago the rank arrived last; nothing if it never did.
  [[nodiscard]] std::optional<std::chrono::milliseconds> last_seen(int rank) const;

  /// Returns when `ready()` is true. It is looked at whenever something changed; `tick()` is called a hundred times a
  /// second while this thread sleeps, and ends the wait by throwing.
  template <class Ready, class Tick>
  void wait(const WaitStyle& style, const Ready& ready, Tick&& tick) {
    for (int spin = 0; spin < style.spins; ++spin) {
      if (ready()) return;
      pause();
    }
    for (int turn = 0; turn < style.yields; ++turn) {
      if (ready()) return;
      yield();
    }
    for (;;) {
      const std::uint32_t seen = lie_down();
      const bool is_ready = ready();
      if (!is_ready) sleep(seen);
      get_up();
      if (is_ready || ready()) return;
      tick();
    }
  }

 private:
  struct alignas(kCacheLine) Bell {
    std::atomic<std::uint32_t> rings;
    std::atomic<std::uint32_t> sleepers;
  };
  struct alignas(kCacheLine) Counter {
    std::atomic<std::uint64_t> value;
  };
  struct alignas(kCacheLine) Arrival {
    std::atomic<std::uint64_t> generation;
    std::atomic<std::int64_t> at_ns;  // steady clock, which the processes of a host share
    std::atomic<std::uint64_t>
        what[2];  // in turn: the others read that of one generation while this rank is in the next
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

  static void pause();
  static void yield();
  [[nodiscard]] std::uint32_t lie_down();
  void sleep(std::uint32_t seen);
  void get_up();
  void ring();

  Bell* bell_ = nullptr;
  Counter* claims_ = nullptr;  // generation << 32 | pieces given out
  Counter* done_ = nullptr;    // pieces done in all generations
  Arrival* arrivals_ = nullptr;
  int ranks_ = 0;
  int rank_ = 0;
};

}  // namespace accel::detail
