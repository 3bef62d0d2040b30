#include "comm/mpi_host.hpp"

#include "core/log.hpp"
#include "runtime/host.hpp"
#include "runtime/session.hpp"

#include <accel/error.hpp>

#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

namespace accel::detail {
namespace {

/// A text of fixed size, for MPI.
using Words = std::array<char, 256>;

Words words_of(const std::string& text) {
  Words words{};
  std::strncpy(words.data(), text.c_str(), words.size() - 1);
  return words;
}

/// What a rank tells those of its host.
struct Card {
  int rank = 0;
  int process = 0;
  std::uint64_t process_namespace = 0;
  ProcessorMask processors{};
};

/// The communicator of this host's ranks, freed when the board is there.
class HostCommunicator {
 public:
  HostCommunicator(MPI_Comm all, int rank) {
    check_mpi(MPI_Comm_split_type(all, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &communicator_),
              "MPI_Comm_split_type");
    return_errors(communicator_);
  }
  ~HostCommunicator() { MPI_Comm_free(&communicator_); }
  HostCommunicator(const HostCommunicator&) = delete;
  HostCommunicator& operator=(const HostCommunicator&) = delete;
  [[nodiscard]] MPI_Comm get() const { return communicator_; }

 private:
  MPI_Comm communicator_ = MPI_COMM_NULL;
};

// Numbers of processes mean the same only within one.
std::uint64_t process_namespace() {
  struct stat status {};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

std::vector<Card> exchange_cards(MPI_Comm host, int rank, int local_size) {
  std::vector<Card> cards(static_cast<std::size_t>(local_size));
  const Card mine{rank, static_cast<int>(::getpid()), process_namespace(), usable_processors()};
  check_mpi(MPI_Allgather(&mine, sizeof(Card), MPI_BYTE, cards.data(), sizeof(Card), MPI_BYTE, host), "MPI_Allgather");
  return cards;
}

// Ranks that are bound to cores of their own have room, however few cores each of them sees.
bool is_crowded(const std::vector<Card>& cards) {
  ProcessorMask together{};
  for (const Card& card : cards)
    for (std::size_t word = 0; word < together.size(); ++word) together[word] |= card.processors[word];
  int processors = 0;
  for (const std::uint64_t word : together) processors += std::popcount(word);
  const auto on_host = std::max(static_cast<int>(cards.size()), Session::get().process().local_size);
  return processors > 0 && (static_cast<int>(cards.size()) > processors ||
                            on_host > std::max(processors, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN))));
}

/// One segment for all ranks of the host, made by the first. `problem` is set where it cannot be had here.
SharedSegment share_segment(MPI_Comm host, int local_rank, std::size_t bytes, SharedMemoryMode kind,
                            std::string& problem) {
  // A path of another process namespace might lead to another file: the mark tells.
  struct Invitation {
    Words path{};
    std::uint64_t mark = 0;
  } invitation;
  SharedSegment segment;
  std::uint64_t* mark = nullptr;
  try {
    if (local_rank == 0) {
      segment = SharedSegment::create(bytes, kind);
      mark = reinterpret_cast<std::uint64_t*>(segment.data());
      *mark = invitation.mark =
          static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()) ^
          (static_cast<std::uint64_t>(::getpid()) << 40) ^ reinterpret_cast<std::uintptr_t>(segment.data());
      invitation.path = words_of(segment.path());
    }
  } catch (const std::runtime_error& error) {
    problem = error.what();
  }
  check_mpi(MPI_Bcast(&invitation, sizeof(invitation), MPI_BYTE, 0, host), "MPI_Bcast");
  if (local_rank == 0 || invitation.path[0] == 0) return segment;
  try {
    segment = SharedSegment::open(invitation.path.data(), bytes);
    if (*reinterpret_cast<const std::uint64_t*>(segment.data()) != invitation.mark)
      throw std::runtime_error("what another rank of this host shares is not seen here (process namespaces?)");
  } catch (const std::runtime_error& error) {
    problem = error.what();
  }
  return segment;
}

bool no_problem(MPI_Comm communicator, const std::string& problem) {
  int problems = problem.empty() ? 0 : 1;
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &problems, 1, MPI_INT, MPI_MAX, communicator), "MPI_Allreduce");
  return problems == 0;
}

/// All ranks give theirs; rank 0 says which is the first, once.
void report_problem(MPI_Comm communicator, int rank, const std::string& problem) {
  int size = 0;
  check_mpi(MPI_Comm_size(communicator, &size), "MPI_Comm_size");
  std::vector<Words> texts(static_cast<std::size_t>(size));
  const Words mine = words_of(problem);
  check_mpi(MPI_Allgather(mine.data(), sizeof(Words), MPI_BYTE, texts.data(), sizeof(Words), MPI_BYTE, communicator),
            "MPI_Allgather");
  const auto first = std::find_if(texts.begin(), texts.end(), [](const Words& text) { return text[0] != 0; });
  if (rank == 0)
    log_once(
        "shared memory", LogLevel::kWarning, {rank, size}, "shared memory",
        cat("gradients go through MPI, which is slower on one host: rank ", first - texts.begin(), ": ", first->data(),
            "; see `accel env`, or set ACCEL_SHARED_MEMORY=0 to do without and without this notice"));
}

// Read before MPI is called and told with the rest: one rank alone must not leave the others waiting.
constexpr int kBadWord = 2;
int wish_of_this_rank(std::string& refusal) {
  try {
    return shared_memory_mode() == SharedMemoryMode::kOff ? 1 : 0;
  } catch (const UsageError& error) {
    refusal = error.what();
    return kBadWord;
  }
}

}  // namespace

MpiHost join_host(MPI_Comm communicator, std::chrono::milliseconds timeout) {
  std::string refusal;
  const int wish = wish_of_this_rank(refusal);
  int rank = 0;
  int size = 1;
  check_mpi(MPI_Comm_rank(communicator, &rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(communicator, &size), "MPI_Comm_size");
  const HostCommunicator host(communicator, rank);
  HostRanks ranks{.group_size = size, .timeout = std::min(timeout, kLongestWait)};
  int local_size = 1;
  check_mpi(MPI_Comm_rank(host.get(), &ranks.local_rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(host.get(), &local_size), "MPI_Comm_size");
  // Everybody's wishes and sizes in one go: off anywhere is off everywhere.
  std::array<int, 3> most{wish, local_size, -local_size};
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, most.data(), 3, MPI_INT, MPI_MAX, communicator), "MPI_Allreduce");
  if (most[0] == kBadWord)
    throw UsageError(refusal.empty() ? message({rank, size}, "ACCEL_SHARED_MEMORY",
                                               "expected 1, 0, memfd or posix, found something else on another rank; "
                                               "correct or unset it there")
                                     : refusal);
  if (most[0] != 0 || most[1] == 1) return {};

  const std::vector<Card> cards = exchange_cards(host.get(), rank, local_size);
  for (const Card& card : cards) {
    ranks.ranks.push_back(card.rank);
    const bool known = card.process_namespace != 0 && card.process_namespace == process_namespace();
    ranks.processes.push_back(known ? card.process : 0);
  }
  ranks.crowded = is_crowded(cards);
  // The first rank's, so that all go the same way.
  if (ranks.local_rank == 0) ranks.limits = read_stage_limits(host_name(), local_size);
  check_mpi(MPI_Bcast(&ranks.limits, sizeof(StageLimits), MPI_BYTE, 0, host.get()), "MPI_Bcast");
  std::string problem;
  std::shared_ptr<SharedSegment> segment;
  for (const SharedMemoryMode kind : kinds_to_try(shared_memory_mode())) {
    problem.clear();
    segment = std::make_shared<SharedSegment>(
        share_segment(host.get(), ranks.local_rank, kCacheLine + HostBoard::bytes(local_size), kind, problem));
    if (no_problem(communicator, problem)) break;
    segment = nullptr;
  }
  if (!segment) {
    report_problem(communicator, rank, problem);
    return {};
  }
  segment->close_door();

  MpiHost joined{.slices = -most[2]};
  const int local_rank = ranks.local_rank;
  joined.board = std::make_shared<HostBoard>(segment->data() + kCacheLine, std::move(ranks), segment);
  if (local_size < size) {
    check_mpi(
        MPI_Comm_split(communicator, local_rank < joined.slices ? local_rank : MPI_UNDEFINED, rank, &joined.across),
        "MPI_Comm_split");
    if (joined.across != MPI_COMM_NULL) return_errors(joined.across);
  }
  return joined;
}

}  // namespace accel::detail
