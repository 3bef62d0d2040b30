#include "runtime/host.hpp"
#include "runtime/mpi.hpp"
#include "runtime/session.hpp"

#include <accel/error.hpp>
#include <accel/process.hpp>

#include <doctest/doctest.h>

using namespace accel;
using namespace accel::detail;

namespace {

int world_rank() {
  int rank = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int world_size() {
  int size = -1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

}  // namespace

TEST_CASE("under mpirun accel owns MPI and knows rank, host and thread level") {
  const Process& me = process();
  CHECK(me.has_mpi);
  CHECK(me.owns_mpi);
  CHECK(me.rank == world_rank());
  CHECK(me.size == world_size());
  CHECK(me.local_rank == me.rank);
  CHECK(me.local_size == me.size);
  CHECK(me.hosts == 1);
  CHECK(me.host_index == 0);
  CHECK(me.host == host_name());
  CHECK(me.thread_level == ThreadLevel::kMultiple);
  CHECK(Session::get().usable());
  CHECK(Session::get().failure_policy(OnFailure::kDefault) == OnFailure::kAbortJob);
  CHECK(job_site().rank == me.rank);
  CHECK(job_site().size == me.size);
}

TEST_CASE("facts of a sub-group count its ranks only") {
  const int rank = world_rank();
  const int size = world_size();
  MPI_Comm half = MPI_COMM_NULL;
  // Ranks backwards, so that places in the group differ from those in the job.
  REQUIRE(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, size - rank, &half) == MPI_SUCCESS);
  return_errors(half);
  const Process facts = facts_of(half);
  const int members = (size + 1 - rank % 2) / 2;
  CHECK(facts.size == members);
  CHECK(facts.rank == members - 1 - rank / 2);
  CHECK(facts.local_size == members);
  CHECK(facts.local_rank == facts.rank);
  CHECK(facts.hosts == 1);
  CHECK(facts.host_index == 0);
  CHECK(facts.owns_mpi);
  CHECK(MPI_Comm_free(&half) == MPI_SUCCESS);
}

TEST_CASE("a duplicate returns errors, which become a CommError with rank, call and MPI's words") {
  MPI_Comm copy = duplicate_communicator(MPI_COMM_WORLD);
  const int rc = MPI_Send(nullptr, 0, MPI_BYTE, world_size() + 5, 0, copy);
  REQUIRE(rc != MPI_SUCCESS);
  const std::string begin = message(job_site(), "send", "MPI failed with code ");
  CHECK_THROWS_WITH_AS(check_mpi(rc, "send"), doctest::Contains(begin.c_str()), CommError);
  CHECK_THROWS_WITH_AS(check_mpi(rc, "send"), doctest::Contains("MPI_ERR_RANK"), CommError);
  CHECK_THROWS_WITH_AS(check_mpi(rc, {3, 9}, "send"), doctest::Contains("accel[3/9] send: "), CommError);
  CHECK_NOTHROW(check_mpi(MPI_SUCCESS, "send"));
  CHECK(MPI_Comm_free(&copy) == MPI_SUCCESS);
}

TEST_CASE("the program's own communicators keep their error handler") {
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  REQUIRE(MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler) == MPI_SUCCESS);
  CHECK(handler == MPI_ERRORS_ARE_FATAL);
  CHECK(MPI_Errhandler_free(&handler) == MPI_SUCCESS);
}
