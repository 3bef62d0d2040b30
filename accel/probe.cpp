// accel-probe: what the tool measures with the library itself; started under mpirun by `accel bench`.
//   accel-probe stage [--no-save]
// Times collectives of 1 KiB to 64 MiB by way of the stage that the ranks of one host share, and by way of MPI, prints
// a table, and keeps for each collective up to which size the stage gains most.
#include "comm/mpi_buffers.hpp"
#include "comm/mpi_host.hpp"
#include "comm/stage_limits.hpp"
#include "runtime/host.hpp"
#include "runtime/session.hpp"

#include <accel/collectives.hpp>
#include <accel/process.hpp>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <functional>
#include <string_view>
#include <vector>

namespace accel::tool {
namespace {

using namespace detail;

constexpr std::int64_t kLargest = std::int64_t{64} << 20;

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

class Probe {
 public:
  explicit Probe(const MpiHost& host, const Ring& ring)
      : board_(*host.board), ring_(ring), data_(size(kLargest)), gathered_(size(kLargest)) {}

  StageLimits run() {
    const Reduction sum{c10::ScalarType::Float, ReduceOp::kSum, 1.0};
    StageLimits limits;
    // Of one rank, as everywhere: an all-gather's result is as large as all of them.
    limits.all_reduce = limit_of(
        "all_reduce", kLargest, [&](std::int64_t bytes) { board_.all_reduce(data_.data(), bytes / 4, 4, sum); },
        [&](std::int64_t bytes) { all_reduce_buffer(data_.data(), bytes / 4, sum, ring_); });
    limits.broadcast = limit_of(
        "broadcast", kLargest, [&](std::int64_t bytes) { board_.broadcast(data_.data(), bytes, 0); },
        [&](std::int64_t bytes) { broadcast_buffer(data_.data(), bytes, 0, ring_); });
    const std::int64_t part = kLargest / ring_.size;
    limits.all_gather = limit_of(
        "all_gather", part,
        [&](std::int64_t bytes) {
          board_.all_gather(gathered_.data(), data_.data(), std::vector<std::int64_t>(size(ring_.size), bytes));
        },
        [&](std::int64_t bytes) { all_gather_buffer(gathered_.data(), data_.data(), bytes, ring_); });
    limits.reduce_scatter = limit_of(
        "reduce_scatter", part,
        [&](std::int64_t bytes) { board_.reduce_scatter(data_.data(), gathered_.data(), bytes / 4, 4, sum); },
        [&](std::int64_t bytes) { reduce_scatter_buffer(data_.data(), gathered_.data(), bytes / 4, sum, ring_); });
    return limits;
  }

 private:
  using Call = std::function<void(std::int64_t)>;

  static std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

  std::int64_t limit_of(const char* name, std::int64_t largest, const Call& stage, const Call& mpi) {
    std::vector<StageTiming> timings;
    for (std::int64_t bytes = 1 << 10; bytes <= largest; bytes *= 4) {
      const StageTiming& times = timings.emplace_back(measure(bytes, stage, mpi));
      if (ring_.rank == 0)
        std::printf("%-16s %10lld bytes   shared memory %10.2f us   MPI %10.2f us   x %.2f\n", name,
                    static_cast<long long>(bytes), times.stage, times.mpi, times.mpi / times.stage);
    }
    return best_limit(timings);
  }

  // In microseconds: the slowest rank's medians, the two in turn.
  StageTiming measure(std::int64_t bytes, const Call& stage, const Call& mpi) {
    const auto calls = std::clamp<std::int64_t>((1 << 20) / bytes, 1, 200);
    std::vector<double> of_stage;
    std::vector<double> of_mpi;
    for (int round = 0; round < 8; ++round) {
      const double first = time(calls, bytes, stage);
      const double second = time(calls, bytes, mpi);
      if (round == 0) continue;
      of_stage.push_back(first);
      of_mpi.push_back(second);
    }
    return {bytes, median(of_stage), median(of_mpi)};
  }

  double time(std::int64_t calls, std::int64_t bytes, const Call& call) {
    require_mpi(MPI_Barrier(ring_.communicator), "MPI_Barrier");
    const double began = MPI_Wtime();
    for (std::int64_t each = 0; each < calls; ++each) call(bytes);
    double took = (MPI_Wtime() - began) / static_cast<double>(calls) * 1e6;
    require_mpi(MPI_Allreduce(MPI_IN_PLACE, &took, 1, MPI_DOUBLE, MPI_MAX, ring_.communicator), "MPI_Allreduce");
    return took;
  }

  HostBoard& board_;
  const Ring ring_;
  std::vector<std::byte> data_;
  std::vector<std::byte> gathered_;
};

int measure_stage(bool save) {
  const Process& process = accel::process();
  if (process.size < 2 || process.hosts != 1) {
    std::fprintf(stderr, "accel-probe: expected at least 2 ranks on one host, found %d on %d\n", process.size,
                 process.hosts);
    return 2;
  }
  MPI_Comm communicator = duplicate_communicator(MPI_COMM_WORLD);
  const MpiHost host = join_host(communicator, std::chrono::minutes(5));
  if (!host.board) {
    if (process.rank == 0)
      std::printf("these ranks share no memory, so there is nothing to choose (one process: %s)\n",
                  describe_shared_memory().c_str());
    return 0;
  }
  const StageLimits limits = Probe(host, {communicator, process.rank, process.size}).run();
  if (process.rank == 0 && save) {
    save_stage_limits(host_name(), process.size, limits);
    std::printf("kept in %s\n", stage_limits_file().c_str());
  }
  return 0;
}

}  // namespace
}  // namespace accel::tool

int main(int argc, char** argv) {
  const std::vector<std::string_view> words(argv + 1, argv + argc);
  const bool save = words.size() == 1;
  if (words.empty() || words[0] != "stage" || (words.size() == 2 && words[1] != "--no-save") || words.size() > 2) {
    std::fprintf(stderr, "usage: mpirun -n 2 accel-probe stage [--no-save]\n");
    return 2;
  }
  try {
    return accel::tool::measure_stage(save);
  } catch (const std::exception& error) {
    accel::job_abort(1, error.what());
  } catch (const accel::detail::MpiFailure& failure) {
    accel::job_abort(1, failure.call);
  } catch (const accel::detail::MeetFailure& failure) {
    accel::job_abort(1, failure.text);
  }
}
