#pragma once

#include "comm/host_board.hpp"
#include "runtime/mpi.hpp"

#include <chrono>
#include <memory>

namespace accel::detail {

/// The ranks of a communicator that share a host with this one, and how they reach those of other hosts.
struct MpiHost {
  std::shared_ptr<HostBoard> board{};  ///< null: everything goes through MPI
  /// One rank of each host: the one with this rank's place among its host's. MPI_COMM_NULL: one host only, or this
  /// rank has no slice.
  MPI_Comm across = MPI_COMM_NULL;
  int slices = 1;  ///< ranks of each host that carry a slice across: as many as the smallest host has
};

/// Makes the board where all ranks agree that it can be had; else one notice says why it cannot. Collective over
/// `communicator`, which is ours.
/// @throws UsageError  ACCEL_SHARED_MEMORY is no known word.   @throws CommError  a peer is lost.
MpiHost join_host(MPI_Comm communicator, std::chrono::milliseconds timeout);

}  // namespace accel::detail
