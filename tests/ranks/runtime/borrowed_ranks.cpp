// A host program that initialises and finalises MPI itself, as MPI_Init does: without threads.

#include "runtime/mpi.hpp"
#include "runtime/session.hpp"
#include "support/captured_stderr.hpp"

#include <accel/error.hpp>
#include <accel/process.hpp>

#include <doctest/doctest.h>

#include <cstdlib>
#include <optional>

using namespace accel;
using namespace accel::detail;
using accel::test::CapturedStderr;

namespace {

// Before main, which asks accel for its rank first.
std::optional<CapturedStderr> captured;
[[maybe_unused]] const bool host_owns_mpi = [] {
  MPI_Init(nullptr, nullptr);
  captured.emplace();
  std::atexit([] {
    int finalized = 0;
    if (MPI_Finalized(&finalized) == MPI_SUCCESS && finalized == 0) MPI_Finalize();
  });
  return true;
}();

}  // namespace

TEST_CASE("case 120: a borrowed MPI without threads gives one notice in the job, and its facts") {
  const std::string text = captured->text();
  captured.reset();
  int provided = 0;
  REQUIRE(MPI_Query_thread(&provided) == MPI_SUCCESS);
  const Process& me = process();
  CHECK(me.has_mpi);
  CHECK_FALSE(me.owns_mpi);
  CHECK(me.thread_level == thread_level_of(provided));
  CHECK(me.thread_level != ThreadLevel::kMultiple);
  if (me.rank == 0)
    CHECK(text.find("call MPI_Init_thread with MPI_THREAD_MULTIPLE in the program") != std::string::npos);
  else
    CHECK(text.empty());
  CHECK(me.local_rank == me.rank);
  CHECK(me.local_size == me.size);
  CHECK(me.hosts == 1);
  CHECK(me.host_index == 0);
}

TEST_CASE("where MPI is borrowed a lost peer throws by default") {
  CHECK(Session::get().failure_policy(OnFailure::kDefault) == OnFailure::kThrow);
}

TEST_CASE("the host's error handler is left as it was") {
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  REQUIRE(MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler) == MPI_SUCCESS);
  CHECK(handler == MPI_ERRORS_ARE_FATAL);
  CHECK(MPI_Errhandler_free(&handler) == MPI_SUCCESS);
}

// The last case: MPI is gone afterwards.
TEST_CASE("the host's MPI_Finalize closes the session first, once, while MPI still works") {
  Session& session = Session::get();
  MPI_Comm copy = duplicate_communicator(MPI_COMM_WORLD);
  int closed = 0;
  int sum = 0;
  session.at_close([&] {
    ++closed;
    int one = 1;
    check_mpi(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, copy), "all_reduce");
    check_mpi(MPI_Comm_free(&copy), "MPI_Comm_free");
  });
  CHECK(session.usable());
  const int size = process().size;
  CHECK(MPI_Finalize() == MPI_SUCCESS);
  CHECK(closed == 1);
  CHECK(sum == size);
  CHECK_FALSE(session.usable());
  CHECK_FALSE(process().has_mpi);
}
