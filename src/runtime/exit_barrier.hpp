#pragma once

#include "runtime/mpi.hpp"

#include <cstddef>
#include <vector>

namespace accel::detail {

/// A barrier that never blocks and can say who has not come: each rank sends nothing to each other one. In jobs of more
/// than kNamedRanks ranks it is MPI_Ibarrier, which cannot tell.
class ExitBarrier {
 public:
  static constexpr int kNamedRanks = 128;

  /// Announces this rank to the others. `communicator` is used by nothing else at that time.
  explicit ExitBarrier(MPI_Comm communicator, int named_ranks = kNamedRanks);

  /// Makes progress; true when every rank has come.
  [[nodiscard]] bool complete();

  /// After a `complete` that was false: ranks that have not come; empty in a large job.
  [[nodiscard]] std::vector<int> missing();

 private:
  int rank_ = 0;
  int size_ = 1;
  std::vector<MPI_Request> arrivals_;  // by rank, own one null; or the one of the barrier
  std::vector<MPI_Request> announcements_;
  bool named_ = true;
};

}  // namespace accel::detail
