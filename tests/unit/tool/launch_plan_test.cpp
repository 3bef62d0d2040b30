#include "accel/launch_plan.hpp"
#include "runtime/launcher.hpp"
#include "support/temporary_environment.hpp"

#include <accel/error.hpp>

#include <doctest/doctest.h>

#include <unistd.h>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>

using namespace accel;
using namespace accel::tool;
using accel::test::TemporaryVariable;

namespace {

const Machine kMachine{.usable_cores = 16, .physical_cores = 8, .mpirun = "/bin/mpirun", .tool = "/bin/accel"};

std::string command_of(const LaunchPlan& plan) {
  std::string text;
  for (const auto& word : plan.command) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string variable_of(const LaunchPlan& plan, const std::string& name) {
  for (const auto& [key, value] : plan.environment)
    if (key == name) return value;
  return "unset";
}

// A batch system's variables would make every plan one for several hosts.
struct NoBatchSystem {
  TemporaryVariable slurm{"SLURM_JOB_ID", nullptr};
  TemporaryVariable pbs{"PBS_NODEFILE", nullptr};
};

}  // namespace

TEST_CASE("case 99: threads a rank are the cores of a machine divided by the ranks on it") {
  CHECK(threads_per_rank(16, 4, 1) == 4);
  CHECK(threads_per_rank(16, 4, 2) == 8);
  CHECK(threads_per_rank(16, 5, 2) == 5);
  CHECK(threads_per_rank(2, 4, 1) == 1);
  const NoBatchSystem none;
  CHECK(variable_of(plan_launch({.ranks = 4, .program = {"p"}}, kMachine, {}), "OMP_NUM_THREADS") == "4");
}

TEST_CASE("ranks that have a core each are not bound and not over-subscribed") {
  const NoBatchSystem none;
  const auto plan = plan_launch({.ranks = 8, .program = {"prog", "-n", "1"}}, kMachine, {"TOKEN"});
  CHECK(command_of(plan) == "/bin/mpirun --quiet -n 8 --bind-to none /bin/accel rank -- prog -n 1");
  CHECK(variable_of(plan, "OMPI_ALLOW_RUN_AS_ROOT") == "unset");
}

TEST_CASE("more ranks than cores are over-subscribed, root is allowed, and the summary says so") {
  const NoBatchSystem none;
  Machine machine = kMachine;
  machine.root = true;
  const auto plan = plan_launch({.ranks = 9, .program = {"prog"}}, machine, {});
  CHECK(command_of(plan) == "/bin/mpirun --quiet -n 9 --oversubscribe --bind-to none /bin/accel rank -- prog");
  CHECK(variable_of(plan, "OMPI_ALLOW_RUN_AS_ROOT") == "1");
  CHECK(variable_of(plan, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM") == "1");
  CHECK(plan.summary ==
        "mpirun -n 9 --oversubscribe --bind-to none (9 ranks, 8 cores, allowed to run as root, OMP_NUM_THREADS=1)");
}

TEST_CASE("a number of threads that is set stays") {
  const NoBatchSystem none;
  Machine machine = kMachine;
  machine.threads_set = true;
  CHECK(variable_of(plan_launch({.ranks = 2, .program = {"p"}}, machine, {}), "OMP_NUM_THREADS") == "unset");
}

TEST_CASE("hosts share the ranks, and what other hosts need is exported") {
  const NoBatchSystem none;
  const LaunchOptions options{.ranks = 8, .environment = {"A", "B=2"}, .hosts = {"a:4", "b:4"}, .program = {"prog"}};
  CHECK(machines_of(options) == 2);
  CHECK(may_be_remote(options));
  const auto plan = plan_launch(options, kMachine, {"TOKEN"});
  CHECK(command_of(plan) ==
        "/bin/mpirun --quiet -n 8 --bind-to none --host a:4,b:4 -x A -x B=2 -x OMP_NUM_THREADS -x TOKEN /bin/accel "
        "rank -- prog");
  CHECK(variable_of(plan, "OMP_NUM_THREADS") == "4");
}

TEST_CASE("a hostfile is counted by its different names, and must be readable") {
  char path[] = "/tmp/accel_hostfile_XXXXXX";
  const int file = ::mkstemp(path);
  REQUIRE(file >= 0);
  ::close(file);
  std::ofstream(path) << "# two machines\nnode1 slots=2\n\nnode2 slots=2\nnode1 slots=1\n";
  CHECK(machines_of({.ranks = 4, .hostfile = path}) == 2);
  std::remove(path);
  CHECK_THROWS_WITH_AS((void)machines_of({.ranks = 4, .hostfile = path}), doctest::Contains(path), UsageError);
}

TEST_CASE("words for mpirun replace the choices they are about") {
  const NoBatchSystem none;
  const auto plan = plan_launch(
      {.ranks = 9, .mpirun_arguments = {"--bind-to", "core", "--oversubscribe"}, .program = {"p"}}, kMachine, {});
  CHECK(command_of(plan) ==
        "/bin/mpirun --quiet -n 9 -x OMP_NUM_THREADS --bind-to core --oversubscribe /bin/accel rank -- p");
}

TEST_CASE("the command is printed as a shell would take it") {
  const NoBatchSystem none;
  const auto plan = plan_launch({.ranks = 1, .program = {"prog", "two words", "it's", ""}}, kMachine, {});
  CHECK(shell_text(plan) ==
        "OMP_NUM_THREADS=16 /bin/mpirun --quiet -n 1 --bind-to none /bin/accel rank -- prog 'two words' 'it'\\''s' ''");
}

TEST_CASE("programs are found as a shell finds them") {
  CHECK(find_program("sh").ends_with("/sh"));
  CHECK(find_program("/bin/sh") == "/bin/sh");
  CHECK(find_program("/bin").empty());
  CHECK(find_program("no-such-program-here").empty());
  CHECK(find_program("/etc/passwd").empty());
}

TEST_CASE("an mpirun that is missing or of another MPI is an error that says how to name one") {
  {
    const TemporaryVariable mpirun("ACCEL_MPIRUN", "/no/mpirun");
    CHECK_THROWS_WITH_AS((void)this_machine(), doctest::Contains("expected Open MPI's mpirun, found no '/no/mpirun'"),
                         UsageError);
  }
  const TemporaryVariable mpirun("ACCEL_MPIRUN", "/bin/echo");
  CHECK_THROWS_WITH_AS((void)this_machine(), doctest::Contains("ACCEL_MPIRUN"), UsageError);
}
