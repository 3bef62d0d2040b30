#include "runtime/launcher.hpp"
#include "support/temporary_environment.hpp"

#include <doctest/doctest.h>

#include <deque>

using namespace accel;
using namespace accel::detail;
using accel::test::TemporaryVariable;

namespace {

// No variable of a launcher, whatever started this test.
class NoLauncher {
 public:
  NoLauncher() {
    for (const char* name : launcher_variables()) variables_.emplace_back(name, nullptr);
    for (const char* name : {"OMPI_MCA_orte_num_nodes", "SLURM_STEP_NUM_NODES", "SLURM_STEP_NUM_TASKS"})
      variables_.emplace_back(name, nullptr);
  }

 private:
  std::deque<TemporaryVariable> variables_;
};

}  // namespace

TEST_CASE("a launcher is seen by the variables of Open MPI, PMIx and PMI") {
  const NoLauncher none;
  CHECK_FALSE(started_by_launcher());
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE"}) {
    const TemporaryVariable set(name, "0");
    CHECK(started_by_launcher());
  }
  CHECK_FALSE(started_by_launcher());
}

TEST_CASE("tasks of a batch system without PMI are told to use srun --mpi=pmix") {
  const NoLauncher none;
  CHECK(notice_of_lone_tasks().empty());
  const TemporaryVariable tasks("SLURM_NTASKS", "4");
  CHECK(notice_of_lone_tasks().find("expected 4 ranks (SLURM_NTASKS)") != std::string::npos);
  CHECK(notice_of_lone_tasks().find("srun --mpi=pmix") != std::string::npos);
  const TemporaryVariable pmi("PMI_RANK", "1");
  CHECK(notice_of_lone_tasks().empty());
}

TEST_CASE("a single task of a batch system needs no notice") {
  const NoLauncher none;
  const TemporaryVariable tasks("SLURM_NTASKS", "1");
  CHECK(notice_of_lone_tasks().empty());
}

TEST_CASE("local facts of a borrowed MPI come from the launcher's variables") {
  const NoLauncher none;
  const TemporaryVariable local_size("OMPI_COMM_WORLD_LOCAL_SIZE", "4");
  const TemporaryVariable local_rank("OMPI_COMM_WORLD_LOCAL_RANK", "2");
  const TemporaryVariable nodes("OMPI_MCA_orte_num_nodes", "2");
  Process process;
  process.rank = 6;
  process.size = 8;
  facts_from_launcher(process);
  CHECK(process.local_size == 4);
  CHECK(process.local_rank == 2);
  CHECK(process.hosts == 2);
  CHECK(process.host_index == 1);
}

TEST_CASE("without such variables a borrowed MPI has one rank a host") {
  const NoLauncher none;
  Process process;
  process.rank = 2;
  process.size = 3;
  facts_from_launcher(process);
  CHECK(process.local_size == 1);
  CHECK(process.local_rank == 0);
  CHECK(process.hosts == 3);
  CHECK(process.host_index == 2);
}

TEST_CASE("variables that are no numbers say nothing") {
  const NoLauncher none;
  const TemporaryVariable size("OMPI_COMM_WORLD_SIZE", "many");
  CHECK_FALSE(launched_size().has_value());
  const TemporaryVariable number("PMI_SIZE", "3");
  CHECK(launched_size() == 3);
}
