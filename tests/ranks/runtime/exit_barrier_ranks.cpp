#include "runtime/exit_barrier.hpp"

#include <accel/process.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <thread>
#include <vector>

using namespace accel;
using namespace accel::detail;

namespace {

bool completes(ExitBarrier& barrier) {
  const auto start = std::chrono::steady_clock::now();
  while (!barrier.complete()) {
    if (std::chrono::steady_clock::now() - start > std::chrono::seconds(20)) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace

TEST_CASE("all ranks come through, with names and, as in a large job, without") {
  process();
  MPI_Comm world = duplicate_communicator(MPI_COMM_WORLD);
  for (const int named_ranks : {128, 0}) {
    ExitBarrier barrier(world, named_ranks);
    CHECK(completes(barrier));
    CHECK(barrier.missing().empty());
  }
  CHECK(MPI_Comm_free(&world) == MPI_SUCCESS);
}

TEST_CASE("ranks that have not come are named, and only these") {
  const Process& me = process();
  if (me.size == 1) return;
  MPI_Comm world = duplicate_communicator(MPI_COMM_WORLD);
  MPI_Comm control = duplicate_communicator(MPI_COMM_WORLD);
  const int last = me.size - 1;
  const bool is_late = me.rank == last;
  if (is_late) REQUIRE(MPI_Barrier(control) == MPI_SUCCESS);
  ExitBarrier barrier(world);
  if (!is_late) {
    // All but the last one have come, or will without waiting for it.
    const auto start = std::chrono::steady_clock::now();
    bool complete = barrier.complete();
    while (barrier.missing().size() != 1 && std::chrono::steady_clock::now() - start < std::chrono::seconds(20))
      complete = barrier.complete();
    CHECK_FALSE(complete);
    CHECK(barrier.missing() == std::vector<int>{last});
    REQUIRE(MPI_Barrier(control) == MPI_SUCCESS);
  }
  CHECK(completes(barrier));
  CHECK(barrier.missing().empty());
  CHECK(MPI_Comm_free(&control) == MPI_SUCCESS);
  CHECK(MPI_Comm_free(&world) == MPI_SUCCESS);
}
