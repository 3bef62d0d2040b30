// The meeting of ranks in shared memory, with threads in the place of processes: thousands of random schedules. Built
// under ThreadSanitizer too (host_board_race), which sees every pair of accesses that nothing orders.
#include "comm/host_board.hpp"

#include "support/torch_doctest.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

using namespace accel;
using namespace accel::detail;

namespace {

// TSan makes everything ten times slower, and sees in a hundred schedules what shows by luck in a hundred thousand.
#if defined(__SANITIZE_THREAD__)
constexpr int kSchedules = 1500;
#else
constexpr int kSchedules = 4000;
#endif

std::shared_ptr<std::byte> zeroed_lines(std::size_t bytes) {
  const std::size_t whole = (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(kCacheLine, whole));
  std::fill_n(memory, whole, std::byte{0});
  return {memory, [](std::byte* pointer) { std::free(pointer); }};
}

// Each rank is a thread; a failure in one is a failure of the test.
void on_ranks(int ranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([&, rank] { body(rank); });
  for (std::thread& thread : threads) thread.join();
}

void dawdle(std::mt19937& random) {
  switch (random() % 8) {
    case 0:
      std::this_thread::yield();
      break;
    case 1:
      for (unsigned turn = random() % 2000; turn > 0; --turn) std::atomic_signal_fence(std::memory_order_seq_cst);
      break;
    default:
      break;
  }
}

struct Meeting {
  int ranks;
  bool crowded;
  std::shared_ptr<std::byte> memory = zeroed_lines(HostBoard::bytes(ranks));

  [[nodiscard]] HostRanks of(int rank, std::chrono::milliseconds timeout = std::chrono::minutes(1)) const {
    HostRanks host{.local_rank = rank, .group_size = ranks, .crowded = crowded, .timeout = timeout};
    for (int each = 0; each < ranks; ++each) host.ranks.push_back(each);
    host.processes.assign(static_cast<std::size_t>(ranks), 0);
    return host;
  }
};

std::byte* bytes_of(std::vector<float>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

// What rank `rank` gives at place `i` of operation `turn`: small whole numbers, whose sums are exact.
float value(int rank, int turn, std::size_t i) {
  return static_cast<float>((static_cast<int>(i) * 7 + rank * 3 + turn) % 64);
}

std::vector<float> values(int rank, int turn, std::size_t count) {
  std::vector<float> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = value(rank, turn, i);
  return all;
}

// One random operation on a board, the same on all ranks. Returns whether its result is what it must be.
bool operation(HostBoard& board, int ranks, int rank, int turn, std::mt19937& shared, std::mt19937& own) {
  // Now and then larger than a stage.
  const std::size_t count = shared() % 50 == 0 ? 140000 + shared() % 1000 : shared() % 3000;
  const auto root = static_cast<int>(shared() % static_cast<unsigned>(ranks));
  const unsigned kind = shared() % 5;
  dawdle(own);
  std::vector<float> mine = values(rank, turn, count);
  bool good = true;
  if (kind == 0) {
    board.barrier();
  } else if (kind == 1) {
    board.all_reduce(bytes_of(mine), static_cast<std::int64_t>(count), sizeof(float), {c10::kFloat, ReduceOp::kSum, 1});
    for (std::size_t i = 0; i < count; ++i) {
      float sum = 0;
      for (int each = 0; each < ranks; ++each) sum += value(each, turn, i);
      good = good && mine[i] == sum;
    }
  } else if (kind == 2) {
    board.broadcast(bytes_of(mine), static_cast<std::int64_t>(count * sizeof(float)), root);
    for (std::size_t i = 0; i < count; ++i) good = good && mine[i] == value(root, turn, i);
  } else if (kind == 3) {
    std::vector<std::int64_t> lengths;
    std::size_t total = 0;
    for (int each = 0; each < ranks; ++each) {
      const std::size_t length = count * static_cast<std::size_t>(each) / static_cast<std::size_t>(ranks);
      lengths.push_back(static_cast<std::int64_t>(length * sizeof(float)));
      total += length;
    }
    std::vector<float> all(total);
    board.all_gather(bytes_of(all), bytes_of(mine), lengths);
    const float* at = all.data();
    for (int each = 0; each < ranks; ++each)
      for (std::size_t i = 0; i < static_cast<std::size_t>(lengths[static_cast<std::size_t>(each)]) / 4; ++i)
        good = good && *at++ == value(each, turn, i);
  } else {
    const std::size_t slice = count / static_cast<std::size_t>(ranks);
    std::vector<float> part(slice);
    board.reduce_scatter(bytes_of(part), bytes_of(mine), static_cast<std::int64_t>(slice), sizeof(float),
                         {c10::kFloat, ReduceOp::kMax, 1});
    for (std::size_t i = 0; i < slice; ++i) {
      float largest = 0;
      for (int each = 0; each < ranks; ++each)
        largest = std::max(largest, value(each, turn, static_cast<std::size_t>(rank) * slice + i));
      good = good && part[i] == largest;
    }
  }
  return good;
}

}  // namespace

TEST_CASE("collectives on a board give every rank its result, in thousands of random schedules") {
  for (const int ranks : {1, 2, 3, 5})
    for (const bool crowded : {false, true}) {
      const Meeting meeting{ranks, crowded};
      std::vector<int> wrong(static_cast<std::size_t>(ranks), 0);
      on_ranks(ranks, [&](int rank) {
        HostBoard board(meeting.memory.get(), meeting.of(rank), meeting.memory);
        std::mt19937 shared(7);
        std::mt19937 own(static_cast<unsigned>(100 + rank));
        for (int turn = 0; turn < kSchedules / 4; ++turn)
          if (!operation(board, ranks, rank, turn, shared, own)) ++wrong[static_cast<std::size_t>(rank)];
      });
      for (const int count : wrong) CHECK(count == 0);
    }
}

TEST_CASE("claimed pieces are each done once, by any thread of any rank, with several buckets under way") {
  constexpr int kRanks = 3;
  constexpr int kBuckets = 4;
  constexpr std::uint32_t kPieces = 5;
  const Meeting meeting{kRanks, true};
  const std::size_t marks_bytes = (MarkSet::bytes(kRanks) + kCacheLine - 1) / kCacheLine * kCacheLine;
  const auto marks_memory = zeroed_lines(kBuckets * marks_bytes);
  // data[bucket][rank][piece]: summed in place over ranks, generation after generation.
  std::vector<std::vector<std::vector<long>>> data(kBuckets,
                                                   std::vector<std::vector<long>>(kRanks, std::vector<long>(kPieces)));
  std::vector<int> wrong(kRanks, 0);
  on_ranks(kRanks, [&](int rank) {
    HostBoard board(meeting.memory.get(), meeting.of(rank), meeting.memory);
    std::vector<MarkSet> marks;
    for (std::size_t bucket = 0; bucket < kBuckets; ++bucket)
      marks.emplace_back(marks_memory.get() + bucket * marks_bytes, kRanks, rank);
    const auto help = [&](std::size_t bucket, std::uint64_t generation) {
      board.wait(marks[bucket], generation,
                 [&] { return marks[bucket].finished(generation, kPieces) || marks[bucket].all_arrived(generation); });
      while (const auto piece = marks[bucket].claim(generation, kPieces)) {
        long sum = 0;
        for (const auto& of_rank : data[bucket]) sum += of_rank[*piece];
        for (auto& of_rank : data[bucket]) of_rank[*piece] = sum;
        marks[bucket].piece_done(generation, kPieces);
      }
    };
    std::mt19937 own(static_cast<unsigned>(rank));
    for (std::uint64_t generation = 1; generation <= kSchedules / 4; ++generation) {
      std::thread helper([&] {
        for (std::size_t bucket = 0; bucket < kBuckets; ++bucket) help(bucket, generation);
      });
      for (std::size_t bucket = 0; bucket < kBuckets; ++bucket) {
        for (std::uint32_t piece = 0; piece < kPieces; ++piece)
          data[bucket][static_cast<std::size_t>(rank)][piece] = static_cast<long>(generation * piece + bucket) + rank;
        dawdle(own);
        marks[bucket].arrive(generation, own() % 2 == 0);
      }
      for (std::size_t bucket = 0; bucket < kBuckets; ++bucket) {
        help(bucket, generation);
        board.wait(marks[bucket], generation, [&] { return marks[bucket].finished(generation, kPieces); });
        for (std::uint32_t piece = 0; piece < kPieces; ++piece)
          if (data[bucket][static_cast<std::size_t>(rank)][piece] !=
              3 * static_cast<long>(generation * piece + bucket) + 3)
            ++wrong[static_cast<std::size_t>(rank)];
      }
      helper.join();
    }
  });
  for (const int count : wrong) CHECK(count == 0);
}

TEST_CASE("ranks that make different calls are told so, all of them") {
  const Meeting meeting{3, true};
  std::vector<std::string> texts(3);
  on_ranks(3, [&](int rank) {
    HostBoard board(meeting.memory.get(), meeting.of(rank), meeting.memory);
    std::vector<float> mine(10, 1.0F);
    board.barrier();
    try {
      board.all_reduce(bytes_of(mine), rank == 2 ? 5 : 10, sizeof(float), {c10::kFloat, ReduceOp::kSum, 1});
    } catch (const MeetFailure& failure) {
      texts[static_cast<std::size_t>(rank)] = failure.text;
    }
  });
  CHECK(texts[0] == texts[1]);
  CHECK(texts[0] ==
        "rank 2 made another call: all_reduce of 20 bytes (sum of Float) there, all_reduce of 40 bytes "
        "(sum of Float) here; make the same calls in the same order on all ranks");
  CHECK(texts[2].find("rank 0 made another call: all_reduce of 40 bytes") == 0);
}

TEST_CASE("a rank that left a loop alone, while another one begins a backward, is told what that looks like") {
  const Meeting meeting{2, true};
  std::vector<std::string> texts(2);
  on_ranks(2, [&](int rank) {
    HostBoard board(meeting.memory.get(), meeting.of(rank), meeting.memory);
    std::vector<float> mine(2, 1.0F);
    std::vector<float> all(4);
    try {
      if (rank == 0)
        board.all_reduce(bytes_of(mine), 2, sizeof(float), {c10::kFloat, ReduceOp::kSum, 1});
      else
        board.all_gather(bytes_of(all), bytes_of(mine), {8, 8});
    } catch (const MeetFailure& failure) {
      texts[static_cast<std::size_t>(rank)] = failure.text;
    }
  });
  CHECK(texts[0].find("rank 1 made another call: all_gather of ") == 0);
  for (const std::string& text : texts) CHECK(text.find("did a rank leave a loop alone?") != std::string::npos);
}

TEST_CASE("a rank that does not come, or gives up, is named by those who wait") {
  const auto failure = [](Meeting& meeting, const std::function<void(HostBoard&)>& other) {
    HostBoard absent(meeting.memory.get(), meeting.of(1), meeting.memory);
    HostBoard board(meeting.memory.get(), meeting.of(0, std::chrono::milliseconds(100)), meeting.memory);
    other(absent);
    try {
      board.barrier();
    } catch (const MeetFailure& caught) {
      return caught;
    }
    return MeetFailure{MeetFailure::Kind::kTimeout, "nothing"};
  };
  Meeting silent{2, false};
  const MeetFailure late = failure(silent, [](HostBoard&) {});
  CHECK(late.kind == MeetFailure::Kind::kTimeout);
  CHECK(late.text == "rank 1 did not arrive");
  Meeting lost{2, true};
  const MeetFailure gone = failure(lost, [](HostBoard& board) { board.give_up("it was tired"); });
  CHECK(gone.kind == MeetFailure::Kind::kGaveUp);
  CHECK(gone.text == "rank 1 had an error in this group: it was tired");
}
