#pragma once

#include <accel/process.hpp>

#include <optional>
#include <string>
#include <vector>

namespace accel::detail {

/// The environment variables by which mpirun, srun and others tell a process its rank.
[[nodiscard]] const std::vector<const char*>& launcher_variables();

/// A launcher that MPI_Init can talk to started this process.
[[nodiscard]] bool started_by_launcher();

/// Ranks of the job as the launcher says, if it does.
[[nodiscard]] std::optional<int> launched_size();

/// Fills local rank and hosts from the launcher's variables: what can be known of a borrowed MPI without a collective
/// call, in which ranks of the host program that do not use accel would not take part. Ranks are assumed to fill one
/// host after the other where the launcher does not say.
void facts_from_launcher(Process& process);

/// A notice for tasks that a batch system started side by side without a way for MPI to find the others; else empty.
[[nodiscard]] std::string notice_of_lone_tasks();

}  // namespace accel::detail
