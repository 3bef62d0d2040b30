#include "runtime/launcher.hpp"

#include "core/env.hpp"
#include "core/message.hpp"

#include <algorithm>
#include <initializer_list>

namespace accel::detail {
namespace {

// Variables are read as they are given to us: one that is no number belongs to somebody else and says nothing.
std::optional<int> first_number(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const auto text = env_text(name);
    if (!text || text->size() > 9) continue;
    if (!std::all_of(text->begin(), text->end(), [](char c) { return c >= '0' && c <= '9'; })) continue;
    return std::stoi(*text);
  }
  return std::nullopt;
}

}  // namespace

const std::vector<const char*>& launcher_variables() {
  static const std::vector<const char*> names = {"OMPI_COMM_WORLD_SIZE",
                                                 "OMPI_COMM_WORLD_RANK",
                                                 "OMPI_COMM_WORLD_LOCAL_RANK",
                                                 "OMPI_COMM_WORLD_LOCAL_SIZE",
                                                 "PMIX_RANK",
                                                 "PMIX_NAMESPACE",
                                                 "PMI_RANK",
                                                 "PMI_SIZE",
                                                 "PMI_FD",
                                                 "MPI_LOCALRANKID",
                                                 "MPI_LOCALNRANKS",
                                                 "MV2_COMM_WORLD_SIZE",
                                                 "PALS_RANKID",
                                                 "SLURM_JOB_ID",
                                                 "SLURM_NTASKS",
                                                 "SLURM_PROCID",
                                                 "SLURM_LOCALID"};
  return names;
}

bool started_by_launcher() {
  const auto names = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK",          "PMI_RANK", "PMI_SIZE", "PMI_FD",
                      "PALS_RANKID",          "MV2_COMM_WORLD_SIZE"};
  return std::any_of(names.begin(), names.end(), [](const char* name) { return env_text(name).has_value(); });
}

std::optional<int> launched_size() {
  return first_number({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"});
}

void facts_from_launcher(Process& process) {
  const auto local_size = first_number({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE"});
  const auto local_rank =
      first_number({"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"});
  if (local_size) process.local_size = std::clamp(*local_size, 1, process.size);
  if (local_rank) process.local_rank = *local_rank;
  process.local_size = std::max(process.local_size, process.local_rank + 1);
  const auto hosts = first_number({"OMPI_MCA_orte_num_nodes", "SLURM_STEP_NUM_NODES"});
  process.hosts = hosts && *hosts >= 1 && *hosts <= process.size
                      ? *hosts
                      : (process.size + process.local_size - 1) / process.local_size;
  process.host_index = std::min(process.rank / process.local_size, process.hosts - 1);
}

std::string notice_of_lone_tasks() {
  const int tasks = first_number({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}).value_or(1);
  if (tasks <= 1 || started_by_launcher()) return {};
  return cat("expected ", tasks, " ranks (SLURM_NTASKS), found no PMI from the launcher: this process is a group of ",
             "one; start the program with `srun --mpi=pmix` or with mpirun");
}

}  // namespace accel::detail
