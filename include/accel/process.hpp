#pragma once

#include <accel/export.hpp>

#include <string>

namespace accel {

/// What MPI allows threads to do; kNone where there is no MPI.
enum class ThreadLevel { kNone, kSingle, kFunneled, kSerialized, kMultiple };

/// What a lost peer does to this process. kDefault is kAbortJob where accel initialised MPI, kThrow where it borrowed
/// the host program's (contract: the other ranks of a host program are never aborted).
enum class OnFailure { kDefault, kAbortJob, kThrow };

/// The facts of this process in the job it was started in.
struct Process {
  int rank = 0;        ///< in the whole job
  int size = 1;        ///< ranks of the job
  int local_rank = 0;  ///< among the ranks that share this host's memory
  int local_size = 1;  ///< ranks on this host
  int host_index = 0;  ///< 0 .. hosts - 1, in order of lowest rank
  int hosts = 1;
  std::string host;       ///< host name
  bool has_mpi = false;   ///< MPI is initialised (and not yet finalised)
  bool owns_mpi = false;  ///< by accel; else by the host program
  ThreadLevel thread_level = ThreadLevel::kNone;
};

/// The facts of this process. The first call initialises MPI if a launcher (`mpirun`, `srun`, `accel launch`) started
/// this process and the program has not done so; without a launcher, and in a build without MPI, it is a group of one.
///
/// Collective at its first call where accel initialises MPI: every rank of the job makes it.
/// @throws CommError  MPI cannot be initialised, or was finalised already.
ACCEL_API const Process& process();

/// Prints `why` with this rank to stderr and ends the whole job with `code`: MPI_Abort where MPI is there, else
/// `std::_Exit`. The one place in accel that ends a process; only programs and the failure policy call it.
[[noreturn]] ACCEL_API void job_abort(int code, const std::string& why);

}  // namespace accel
