#include "runtime/session.hpp"
#include "runtime/host.hpp"

#include <accel/process.hpp>

#include <doctest/doctest.h>

using namespace accel;
using namespace accel::detail;
using std::chrono::milliseconds;

TEST_CASE("without a launcher this process is a group of one that never starts MPI") {
  const Process& me = process();
  CHECK(me.rank == 0);
  CHECK(me.size == 1);
  CHECK(me.local_rank == 0);
  CHECK(me.local_size == 1);
  CHECK(me.host_index == 0);
  CHECK(me.hosts == 1);
  CHECK(me.host == host_name());
  CHECK_FALSE(me.has_mpi);
  CHECK_FALSE(me.owns_mpi);
  CHECK(me.thread_level == ThreadLevel::kNone);
  CHECK_FALSE(Session::get().usable());
}

TEST_CASE("the default failure policy throws where accel does not own MPI; a chosen one stays") {
  CHECK(Session::get().failure_policy(OnFailure::kDefault) == OnFailure::kThrow);
  CHECK(Session::get().failure_policy(OnFailure::kAbortJob) == OnFailure::kAbortJob);
  CHECK(Session::get().failure_policy(OnFailure::kThrow) == OnFailure::kThrow);
}

TEST_CASE("the exit time-out is 30 minutes until asked for, then the longest asked for") {
  Session& session = Session::get();
  CHECK(session.exit_timeout() == std::chrono::minutes(30));
  session.set_exit_timeout(milliseconds(500));
  CHECK(session.exit_timeout() == milliseconds(500));
  session.set_exit_timeout(milliseconds(2000));
  session.set_exit_timeout(milliseconds(1000));
  CHECK(session.exit_timeout() == milliseconds(2000));
}

TEST_CASE("this host has cores, memory and a name") {
  CHECK(usable_cores() >= 1);
  CHECK(physical_cores() >= 1);
  CHECK(physical_cores() <= usable_cores());
  CHECK(memory_bytes() > (std::uint64_t{1} << 20));
  CHECK_FALSE(host_name().empty());
}
