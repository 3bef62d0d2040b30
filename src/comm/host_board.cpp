#include "comm/host_board.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace accel::detail {
namespace {

// Measured, 2 ranks on 2 cores: the other rank is there within a few microseconds, or it computes still. With more
// ranks than cores the one that is waited for needs this core.
constexpr WaitStyle kRoomy{.spins = 2000, .yields = 20};
constexpr WaitStyle kCrowded{.spins = 0, .yields = 2};

// Up to here each rank adds up all the others' parts itself, in one meeting; beyond, each does a slice for all.
constexpr int kRanksOfOneMeeting = 3;
constexpr std::size_t kBytesOfOneMeeting = std::size_t{32} << 10;

// Measured, 2 ranks: 1 MiB takes 154 us in stages of 64 KiB, 97 of 256, 60 of 512. All of them together stay in the
// cache that the cores of a host share.
std::size_t stage_bytes_of(int ranks) {
  return std::clamp((std::size_t{4} << 20) / static_cast<std::size_t>(ranks), std::size_t{64} << 10,
                    std::size_t{512} << 10) /
         kCacheLine * kCacheLine;
}

std::size_t size_of(std::int64_t count) {
  return static_cast<std::size_t>(count);
}

enum class Call { kBarrier, kAllReduce, kBroadcast, kAllGather, kReduceScatter };

// What ranks must agree on, in one word: call, dtype, operation, root, and bytes as far as there is room for them.
std::uint64_t word_of(Call call, int dtype, int op, int root, std::int64_t bytes) {
  return static_cast<std::uint64_t>(call) | (static_cast<std::uint64_t>(dtype) & 63) << 3 |
         (static_cast<std::uint64_t>(op) & 7) << 9 | (static_cast<std::uint64_t>(root) & 1023) << 12 |
         static_cast<std::uint64_t>(bytes) << 22;
}

std::uint64_t word_of(Call call, const Reduction& reduction, std::int64_t bytes) {
  return word_of(call, static_cast<int>(reduction.dtype), static_cast<int>(reduction.op), 0, bytes);
}

std::string words_of(std::uint64_t word) {
  constexpr std::array<const char*, 5> kNames{"barrier", "all_reduce", "broadcast", "all_gather", "reduce_scatter"};
  constexpr std::array<const char*, 5> kOps{"sum", "avg", "min", "max", "product"};
  const auto call = static_cast<Call>(word & 7);
  std::string words = kNames[std::min<std::size_t>(word & 7, kNames.size() - 1)];
  if (call == Call::kBarrier) return words;
  words += cat(" of ", grouped(static_cast<std::int64_t>(word >> 22)), " bytes");
  if (call == Call::kBroadcast) words += cat(" from rank ", word >> 12 & 1023);
  if (call == Call::kAllReduce || call == Call::kReduceScatter)
    words += cat(" (", kOps[std::min<std::size_t>(word >> 9 & 7, kOps.size() - 1)], " of ",
                 c10::toString(static_cast<c10::ScalarType>(word >> 3 & 63)), ")");
  return words;
}

// A backward that syncs begins with a gather that no program wrote, and meets whatever the others do meanwhile.
const char* hint_of(std::uint64_t one, std::uint64_t other) {
  constexpr std::uint64_t kLargestHeader = 4096;
  const auto gathers = [](std::uint64_t word) {
    return static_cast<Call>(word & 7) == Call::kAllGather && word >> 22 <= kLargestHeader;
  };
  if (gathers(one) == gathers(other)) return "";
  return " (a small all_gather begins a backward that syncs: did a rank leave a loop alone? accelerator.any decides "
         "for all)";
}

}  // namespace

struct alignas(kCacheLine) HostBoard::Header {
  std::atomic<std::int32_t> gave_up;  // local rank + 1 of the first that did
  std::atomic<std::int32_t> told;     // 1: `why` is written
  std::array<char, 240> why;
};

std::size_t HostBoard::bytes(int local_size) {
  const auto ranks = size_of(local_size);
  return sizeof(Header) + up_to_line(MarkSet::bytes(local_size)) + 2 * (ranks + 1) * stage_bytes_of(local_size);
}

HostBoard::HostBoard(std::byte* memory, HostRanks ranks, std::shared_ptr<const void> keep)
    : ranks_(std::move(ranks)),
      keep_(std::move(keep)),
      style_(ranks_.crowded ? kCrowded : kRoomy),
      header_(reinterpret_cast<Header*>(memory)),
      marks_(memory + sizeof(Header), ranks_.size(), ranks_.local_rank),
      stages_(memory + sizeof(Header) + up_to_line(MarkSet::bytes(ranks_.size()))),
      stage_bytes_(stage_bytes_of(ranks_.size())) {}

std::byte* HostBoard::stage(int local_rank) const {
  return stages_ + (size_of(turn_) * size_of(ranks_.size() + 1) + size_of(local_rank)) * stage_bytes_;
}

std::byte* HostBoard::result_stage() const {
  return stage(ranks_.size());
}

std::vector<std::byte*> HostBoard::stages() const {
  std::vector<std::byte*> all;
  for (int rank = 0; rank < ranks_.size(); ++rank) all.push_back(stage(rank));
  return all;
}

void HostBoard::meet(std::uint64_t what) {
  const std::uint64_t generation = ++generation_;
  marks_.arrive(generation, true, what);
  wait(marks_, generation, [&] { return marks_.all_arrived(generation); });
  for (int rank = 0; rank < ranks_.size(); ++rank)
    if (const std::uint64_t theirs = marks_.came_for(rank, generation); theirs != what)
      throw MeetFailure{MeetFailure::Kind::kOther,
                        cat(name_of(rank), " made another call: ", words_of(theirs), " there, ", words_of(what),
                            " here; make the same calls in the same order on all ranks", hint_of(theirs, what))};
}

void HostBoard::barrier() {
  next_piece();
  meet(word_of(Call::kBarrier, 0, 0, 0, 0));
}

void HostBoard::all_reduce(std::byte* data, std::int64_t numel, std::size_t itemsize, const Reduction& reduction) {
  const auto piece = static_cast<std::int64_t>(stage_bytes_ / itemsize);
  const std::uint64_t what = word_of(Call::kAllReduce, reduction, numel * static_cast<std::int64_t>(itemsize));
  for (std::int64_t first = 0; first < numel; first += piece) {
    const std::int64_t count = std::min(piece, numel - first);
    std::byte* const from = data + size_of(first) * itemsize;
    next_piece();
    std::memcpy(stage(ranks_.local_rank), from, size_of(count) * itemsize);
    meet(what);
    if (ranks_.size() <= kRanksOfOneMeeting || size_of(count) * itemsize <= kBytesOfOneMeeting)
      all_reduce_piece(from, count, reduction);
    else
      all_reduce_slices(from, count, reduction, itemsize, what);
  }
}

void HostBoard::all_reduce_piece(std::byte* data, std::int64_t numel, const Reduction& reduction) {
  std::vector<std::byte*> inputs = stages();
  inputs[size_of(ranks_.local_rank)] = data;
  combine(inputs, {&data, 1}, numel, reduction, ranks_.size());
}

void HostBoard::all_reduce_slices(std::byte* data, std::int64_t numel, const Reduction& reduction, std::size_t itemsize,
                                  std::uint64_t what) {
  const std::size_t slice_bytes =
      up_to_line((size_of(numel) + size_of(ranks_.size()) - 1) / size_of(ranks_.size()) * itemsize);
  const auto slice = static_cast<std::int64_t>(slice_bytes / itemsize);
  const std::int64_t first = std::min(numel, slice * ranks_.local_rank);
  const std::int64_t count = std::min(slice, numel - first);
  std::vector<std::byte*> inputs = stages();
  for (std::byte*& input : inputs) input += size_of(first) * itemsize;
  std::byte* const output = result_stage() + size_of(first) * itemsize;
  combine(inputs, {&output, 1}, count, reduction, ranks_.size());
  meet(what);
  std::memcpy(data, result_stage(), size_of(numel) * itemsize);
}

void HostBoard::broadcast(std::byte* data, std::int64_t bytes, int root) {
  for (std::int64_t first = 0; first < bytes; first += static_cast<std::int64_t>(stage_bytes_)) {
    const std::size_t count = std::min(stage_bytes_, size_of(bytes - first));
    next_piece();
    if (ranks_.local_rank == root) std::memcpy(stage(root), data + first, count);
    meet(word_of(Call::kBroadcast, 0, 0, root, bytes));
    if (ranks_.local_rank != root) std::memcpy(data + first, stage(root), count);
  }
}

void HostBoard::all_gather(std::byte* output, const std::byte* input, const std::vector<std::int64_t>& bytes) {
  const std::int64_t longest = *std::max_element(bytes.begin(), bytes.end());
  const auto count_at = [&](int rank, std::int64_t first) {
    const std::int64_t rest = bytes[size_of(rank)] - first;
    return rest > 0 ? std::min(stage_bytes_, size_of(rest)) : 0;
  };
  for (std::int64_t first = 0; first < longest; first += static_cast<std::int64_t>(stage_bytes_)) {
    next_piece();
    std::memcpy(stage(ranks_.local_rank), input + std::min(first, bytes[size_of(ranks_.local_rank)]),
                count_at(ranks_.local_rank, first));
    meet(word_of(Call::kAllGather, 0, 0, 0, longest));
    std::byte* to = output + first;
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      const std::byte* const from = rank == ranks_.local_rank ? input + first : stage(rank);
      if (const std::size_t count = count_at(rank, first); count > 0 && to != from) std::memcpy(to, from, count);
      to += bytes[size_of(rank)];
    }
  }
}

void HostBoard::reduce_scatter(std::byte* output, const std::byte* input, std::int64_t numel, std::size_t itemsize,
                               const Reduction& reduction) {
  const auto piece = std::max<std::int64_t>(1, static_cast<std::int64_t>(stage_bytes_ / itemsize) / ranks_.size());
  for (std::int64_t first = 0; first < numel; first += piece) {
    const std::int64_t count = std::min(piece, numel - first);
    next_piece();
    for (int rank = 0; rank < ranks_.size(); ++rank)
      std::memcpy(stage(ranks_.local_rank) + size_of(rank * count) * itemsize,
                  input + size_of(rank * numel + first) * itemsize, size_of(count) * itemsize);
    meet(word_of(Call::kReduceScatter, reduction, numel * static_cast<std::int64_t>(itemsize)));
    std::vector<std::byte*> inputs = stages();
    for (std::byte*& each : inputs) each += size_of(ranks_.local_rank * count) * itemsize;
    std::byte* const to = output + size_of(first) * itemsize;
    combine(inputs, {&to, 1}, count, reduction, ranks_.size());
  }
}

void HostBoard::give_up(const std::string& why) noexcept {
  std::int32_t nobody = 0;
  if (!header_->gave_up.compare_exchange_strong(nobody, ranks_.local_rank + 1)) return;
  std::strncpy(header_->why.data(), why.c_str(), header_->why.size() - 1);
  header_->told.store(1);
}

std::string HostBoard::news_of(int giver) const {
  std::string news = giver == ranks_.local_rank ? "this rank" : name_of(giver);
  news += " had an error in this group";
  if (header_->told.load() != 0) news += cat(": ", header_->why.data());
  return news;
}

std::string HostBoard::name_of(int local_rank) const {
  std::string name = cat("rank ", ranks_.ranks[size_of(local_rank)]);
  if (const int process = ranks_.processes[size_of(local_rank)]; process > 0) name += cat(" (process ", process, ")");
  return name;
}

// Asked for when it is needed: kept open, such descriptors would be as many as ranks times groups.
bool HostBoard::has_ended(int local_rank) const {
  const int process = ranks_.processes[size_of(local_rank)];
  if (process <= 0 || local_rank == ranks_.local_rank) return false;
  const int descriptor = static_cast<int>(::syscall(SYS_pidfd_open, process, 0));
  if (descriptor < 0) return errno == ESRCH;
  pollfd query{descriptor, POLLIN, 0};
  const bool ended = ::poll(&query, 1, 0) == 1;  // readable once it has ended, reaped or not
  ::close(descriptor);
  return ended;
}

std::optional<MeetFailure> HostBoard::look_around(const MarkSet& marks, std::uint64_t generation,
                                                  std::chrono::steady_clock::time_point deadline) {
  const int rank = static_cast<int>(looked_at_.fetch_add(1) % static_cast<unsigned>(ranks_.size()));
  if (has_ended(rank)) return MeetFailure{MeetFailure::Kind::kEnded, cat(name_of(rank), " has ended")};
  if (const std::int32_t who = header_->gave_up.load(); who > 0)
    return MeetFailure{MeetFailure::Kind::kGaveUp, news_of(who - 1)};
  if (std::chrono::steady_clock::now() < deadline) return std::nullopt;
  const std::optional<int> missing = marks.missing(generation);
  if (!missing) return MeetFailure{MeetFailure::Kind::kTimeout, "all ranks arrived, one does not finish its part"};
  const auto seen = marks.last_seen(*missing);
  return MeetFailure{
      MeetFailure::Kind::kTimeout,
      cat(name_of(*missing), " did not arrive",
          seen ? cat("; it was here last ", static_cast<double>(seen->count()) / 1000.0, " s ago") : "")};
}

}  // namespace accel::detail
