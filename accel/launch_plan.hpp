#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace accel::tool {

struct LaunchOptions {
  int ranks = 0;
  std::vector<std::string> environment = {};  ///< NAME or NAME=VALUE, for the ranks
  std::string hostfile = {};
  std::vector<std::string> hosts = {};             ///< host or host:slots
  std::vector<std::string> mpirun_arguments = {};  ///< passed on as they are, before the program
  std::chrono::milliseconds timeout{0};            ///< of the whole job; 0: none
  std::vector<std::string> program = {};
};

/// What a plan depends on besides the options.
struct Machine {
  int usable_cores = 1;
  int physical_cores = 1;  ///< what mpirun counts as slots
  bool root = false;
  bool threads_set = false;  ///< OMP_NUM_THREADS is in the environment
  std::string mpirun = {};   ///< path
  std::string tool = {};     ///< path of this program
};

struct LaunchPlan {
  std::vector<std::string> command;
  std::vector<std::pair<std::string, std::string>> environment;  ///< to set for mpirun
  std::string summary;                                           ///< one line: what was chosen, and why
};

/// cores / (ranks on one machine), at least 1.
[[nodiscard]] int threads_per_rank(int cores, int ranks, int machines);

/// Different hosts in --hosts or the hostfile; 1 without either.
/// @throws UsageError  the hostfile cannot be read.
[[nodiscard]] int machines_of(const LaunchOptions& options);

/// The job may reach other hosts: by the options, or because a batch system gave us several.
[[nodiscard]] bool may_be_remote(const LaunchOptions& options);

/// `exported`: names of variables that ranks on other hosts need too.
[[nodiscard]] LaunchPlan plan_launch(const LaunchOptions& options, const Machine& machine,
                                     const std::vector<std::string>& exported);

/// This host, with Open MPI's mpirun searched in PATH.
/// @throws UsageError  none was found, or it is not Open MPI's.
[[nodiscard]] Machine this_machine();

/// Path of a program as a shell would find it; empty if there is none.
[[nodiscard]] std::string find_program(const std::string& name);

/// The command as a shell would take it.
[[nodiscard]] std::string shell_text(const LaunchPlan& plan);

}  // namespace accel::tool
