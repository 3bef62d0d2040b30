#include "comm/mark_set.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <climits>
#include <ctime>
#include <new>

namespace accel::detail {
namespace {

constexpr long kTickNanoseconds = 10'000'000;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

std::size_t MarkSet::bytes(int ranks) {
  return sizeof(Bell) + 2 * sizeof(Counter) + static_cast<std::size_t>(ranks) * sizeof(Arrival);
}

MarkSet::MarkSet(std::byte* memory, int ranks, int rank)
    : bell_(reinterpret_cast<Bell*>(memory)),
      claims_(reinterpret_cast<Counter*>(memory + sizeof(Bell))),
      done_(claims_ + 1),
      arrivals_(reinterpret_cast<Arrival*>(claims_ + 2)),
      ranks_(ranks),
      rank_(rank) {}

// Note [Order]: everything is sequentially consistent. A rank stores its mark and then looks for sleepers; a sleeper
// counts itself and then looks at the marks. So either the first sees the second, or the second the first.

void MarkSet::arrive(std::uint64_t generation, bool wake, std::uint64_t what) {
  Arrival& mine = arrivals_[rank_];
  mine.at_ns.store(now_ns(), std::memory_order_relaxed);
  mine.what[generation % 2].store(what, std::memory_order_relaxed);
  mine.generation.store(generation);
  if (wake && bell_->sleepers.load() > 0 && all_arrived(generation)) ring();
}

bool MarkSet::all_arrived(std::uint64_t generation) const {
  return !missing(generation);
}

std::uint64_t MarkSet::came_for(int rank, std::uint64_t generation) const {
  return arrivals_[rank].what[generation % 2].load(std::memory_order_relaxed);
}

std::optional<int> MarkSet::missing(std::uint64_t generation) const {
  for (int rank = 0; rank < ranks_; ++rank)
    if (arrivals_[rank].generation.load() < generation) return rank;
  return std::nullopt;
}

std::optional<std::chrono::milliseconds> MarkSet::last_seen(int rank) const {
  const std::int64_t at = arrivals_[rank].at_ns.load(std::memory_order_relaxed);
  if (at == 0) return std::nullopt;
  return std::chrono::milliseconds((now_ns() - at) / 1'000'000);
}

std::optional<std::uint32_t> MarkSet::claim(std::uint64_t generation, std::uint32_t pieces) {
  const std::uint64_t first = (generation & UINT32_MAX) << 32;
  std::uint64_t seen = claims_->value.load();
  for (;;) {
    // A claim of an earlier generation: nobody can claim there any more, since all have arrived at this one.
    const std::uint64_t next = (seen >> 32) == (generation & UINT32_MAX) ? seen : first;
    const auto piece = static_cast<std::uint32_t>(next);
    if (piece >= pieces || finished(generation, pieces)) return std::nullopt;
    if (claims_->value.compare_exchange_weak(seen, next + 1)) return piece;
  }
}

void MarkSet::piece_done(std::uint64_t generation, std::uint32_t pieces) {
  if (done_->value.fetch_add(1) + 1 == generation * pieces && bell_->sleepers.load() > 0) ring();
}

bool MarkSet::finished(std::uint64_t generation, std::uint32_t pieces) const {
  return done_->value.load() >= generation * pieces;
}

void MarkSet::pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void MarkSet::yield() {
  ::sched_yield();
}

std::uint32_t MarkSet::lie_down() {
  bell_->sleepers.fetch_add(1);
  return bell_->rings.load();
}

void MarkSet::sleep(std::uint32_t seen) {
  const timespec limit{0, kTickNanoseconds};
  ::syscall(SYS_futex, &bell_->rings, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void MarkSet::get_up() {
  bell_->sleepers.fetch_sub(1);
}

void MarkSet::ring() {
  bell_->rings.fetch_add(1);
  ::syscall(SYS_futex, &bell_->rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace accel::detail
