#pragma once

#include "comm/combine.hpp"
#include "comm/mark_set.hpp"
#include "comm/stage_limits.hpp"
#include "core/message.hpp"
#include "runtime/shared_memory.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace accel::detail {

/// Why a rank stopped waiting for another one of its host. The engine turns it into the error of the call.
struct MeetFailure {
  enum class Kind {
    kTimeout,  ///< it did not arrive in time
    kEnded,    ///< its process is gone
    kGaveUp,   ///< it had an error in this group and will not come any more
    kOther,    ///< it made another call
  };
  Kind kind = Kind::kTimeout;
  std::string text;  ///< names the rank and since when it has not been seen
};

/// Which ranks of a group share a host with this one, and how they wait for each other.
struct HostRanks {
  std::vector<int> ranks{};  ///< in the group, in order: local rank i is rank ranks[i]
  int local_rank = 0;
  int group_size = 1;
  std::vector<int> processes{};  ///< their process ids; 0 where another namespace counts them
  StageLimits limits{};          ///< of what goes by way of the stage
  bool crowded = false;          ///< more ranks than cores
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};  ///< longest wait for a rank

  [[nodiscard]] int size() const { return static_cast<int>(ranks.size()); }
  /// The whole group is on this host.
  [[nodiscard]] bool one_host() const { return size() == group_size; }
};

/// For those who wait for somebody who waits for a rank of this host.
constexpr std::chrono::milliseconds kMeetingGrace = std::chrono::seconds(1);

/// Memory in which the ranks of a group that share a host meet: marks, and a stage through which tensors go from rank
/// to rank in pieces that stay in cache.
///
/// Every piece is a meeting: a rank writes its part to its place on the stage, arrives, and when all have arrived reads
/// the others'. There are two stages, used in turn: who has seen all arrive at a meeting knows that all have read what
/// was on the stage of the meeting before.
///
/// Collective, in the same order on all ranks, one call at a time. What does not end well throws MeetFailure; no other
/// call is of use then.
class HostBoard {
 public:
  [[nodiscard]] static std::size_t bytes(int local_size);

  /// `memory`: zeros at first, on a cache line, the same for all ranks; stays as long as `keep` does.
  HostBoard(std::byte* memory, HostRanks ranks, std::shared_ptr<const void> keep);
  ~HostBoard() = default;
  HostBoard(const HostBoard&) = delete;
  HostBoard& operator=(const HostBoard&) = delete;

  [[nodiscard]] const HostRanks& ranks() const { return ranks_; }

  void barrier();
  void all_reduce(std::byte* data, std::int64_t numel, std::size_t itemsize, const Reduction& reduction);
  void broadcast(std::byte* data, std::int64_t bytes, int root);
  /// Rank r gives `bytes[r]`; they follow one another in `output`.
  void all_gather(std::byte* output, const std::byte* input, const std::vector<std::int64_t>& bytes);
  /// `input` is size x numel elements; `output` gets slice `rank`.
  void reduce_scatter(std::byte* output, const std::byte* input, std::int64_t numel, std::size_t itemsize,
                      const Reduction& reduction);

  /// This rank will not come any more: those who wait for it are told, and why.
  void give_up(const std::string& why) noexcept;

  /// Waits on marks of these ranks, on the board or elsewhere. @param busy  worth keeping the core for a while
  template <class Ready>
  void wait(MarkSet& marks, std::uint64_t generation, const Ready& ready, bool busy = true) {
    if (ready()) return;
    const auto deadline = std::chrono::steady_clock::now() + ranks_.timeout;
    marks.wait(busy ? style_ : WaitStyle{}, ready, [&] {
      const auto failure = look_around(marks, generation, deadline);
      if (failure && !ready()) throw MeetFailure(*failure);  // it may have arrived, and then ended
    });
  }

 private:
  struct Header;

  [[nodiscard]] std::byte* stage(int local_rank) const;
  [[nodiscard]] std::byte* result_stage() const;
  [[nodiscard]] std::vector<std::byte*> stages() const;
  void meet(std::uint64_t what);
  void next_piece() { turn_ = 1 - turn_; }
  void all_reduce_piece(std::byte* data, std::int64_t numel, const Reduction& reduction);
  void all_reduce_slices(std::byte* data, std::int64_t numel, const Reduction& reduction, std::size_t itemsize,
                         std::uint64_t what);
  [[nodiscard]] std::optional<MeetFailure> look_around(const MarkSet& marks, std::uint64_t generation,
                                                       std::chrono::steady_clock::time_point deadline);
  [[nodiscard]] std::string news_of(int giver) const;
  [[nodiscard]] std::string name_of(int local_rank) const;
  [[nodiscard]] bool has_ended(int local_rank) const;

  const HostRanks ranks_;
  const std::shared_ptr<const void> keep_;
  WaitStyle style_;
  Header* header_ = nullptr;
  MarkSet marks_;
  std::byte* stages_ = nullptr;
  const std::size_t stage_bytes_;  // of one rank in one stage
  std::uint64_t generation_ = 0;
  int turn_ = 0;
  std::atomic<unsigned> looked_at_{0};  // local ranks are looked at in turn: each look costs system calls
};

}  // namespace accel::detail
