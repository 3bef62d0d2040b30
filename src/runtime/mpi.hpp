#pragma once

/// The one header of accel's own sources that shows MPI.

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include "core/message.hpp"

#include <accel/process.hpp>

#include <mpi.h>

#include <string_view>

namespace accel::detail {

/// Throws a CommError with MPI's own words if `rc` is not MPI_SUCCESS. `call` is what the text names, as in
/// "all_reduce" or "MPI_Comm_dup"; without a site it speaks with the rank in the whole job.
void check_mpi(int rc, std::string_view call);
void check_mpi(int rc, Site site, std::string_view call);

/// A duplicate that returns errors instead of ending the job; the original keeps its own error handler. Collective.
[[nodiscard]] MPI_Comm duplicate_communicator(MPI_Comm communicator);

/// Sets `communicator` to return errors: for communicators that are ours already, such as those of MPI_Comm_split.
void return_errors(MPI_Comm communicator);

/// The facts of this process among the ranks of `communicator`: local ranks and hosts count its ranks only.
/// Collective over it. Call it with a communicator of ours (see duplicate_communicator).
[[nodiscard]] Process facts_of(MPI_Comm communicator);

/// As facts_of, but writes rank, size, local ranks and hosts into facts that are there already. Needs no session.
void place_among(Process& facts, MPI_Comm communicator);

/// What the whole session was given by MPI_Init_thread or MPI_Query_thread.
[[nodiscard]] ThreadLevel thread_level_of(int mpi_level);

}  // namespace accel::detail
