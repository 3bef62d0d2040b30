#include "runtime/exit_barrier.hpp"

namespace accel::detail {
namespace {

constexpr int kTag = 0;

bool all_done(std::vector<MPI_Request>& requests) {
  int done = 0;
  check_mpi(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
  return done != 0;
}

}  // namespace

ExitBarrier::ExitBarrier(MPI_Comm communicator, int named_ranks) {
  check_mpi(MPI_Comm_rank(communicator, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(communicator, &size_), "MPI_Comm_size");
  named_ = size_ <= named_ranks;
  if (!named_) {
    arrivals_.assign(1, MPI_REQUEST_NULL);
    check_mpi(MPI_Ibarrier(communicator, arrivals_.data()), "MPI_Ibarrier");
    return;
  }
  arrivals_.assign(static_cast<std::size_t>(size_), MPI_REQUEST_NULL);
  announcements_ = arrivals_;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const auto at = static_cast<std::size_t>(peer);
    check_mpi(MPI_Irecv(nullptr, 0, MPI_BYTE, peer, kTag, communicator, &arrivals_[at]), "MPI_Irecv");
    check_mpi(MPI_Isend(nullptr, 0, MPI_BYTE, peer, kTag, communicator, &announcements_[at]), "MPI_Isend");
  }
}

bool ExitBarrier::complete() {
  const bool arrived = all_done(arrivals_);
  return all_done(announcements_) && arrived;
}

std::vector<int> ExitBarrier::missing() {
  std::vector<int> ranks;
  if (!named_) return ranks;
  for (int peer = 0; peer < size_; ++peer) {
    int done = 0;
    check_mpi(MPI_Test(&arrivals_[static_cast<std::size_t>(peer)], &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done == 0) ranks.push_back(peer);
  }
  return ranks;
}

}  // namespace accel::detail
