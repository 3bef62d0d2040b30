#pragma once

/// The one public header that shows MPI and c10d: for programs that own a communicator or a process group already.

#include <accel/collectives.hpp>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#if __has_include(<mpi.h>)
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>
#define ACCEL_INTEROP_HAS_MPI 1
#endif

namespace accel::interop {

#ifdef ACCEL_INTEROP_HAS_MPI
/// A group of the ranks of `communicator`, which is duplicated: the caller keeps its own. Collective over it.
/// @throws UsageError  MPI is not initialised, MPI_COMM_NULL, an inter-communicator, or accel was built without MPI.
ACCEL_API Group group_from_mpi(MPI_Comm communicator, const GroupOptions& options = {});
#endif

/// A group over a process group of the caller's (gloo, NCCL, a double in a test). Local. `duplicate` of such a group
/// shares its backends; `split` throws UsageError, since c10d backends differ in whether they can.
ACCEL_API Group group_from_c10d(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group,
                                const GroupOptions& options = {});

/// The c10d backend that a group uses for tensors on devices of this type; null if it has none (group of one).
ACCEL_API c10::intrusive_ptr<c10d::Backend> backend_of(const Group& group, c10::DeviceType type);

}  // namespace accel::interop
