#pragma once

#include "comm/mpi_engine.hpp"

#include <cstdint>
#include <mutex>
#include <vector>

namespace accel::detail {

/// A message between two ranks, outside the order of collectives: posted without blocking and completed by whoever
/// waits for it. So a rank may post its receive before or after its send.
class MpiTransfer final : public WorkImpl {
 public:
  static Channel::Pending send(const std::shared_ptr<MpiEngine>& engine, const at::Tensor& tensor, int to, int tag,
                               const MpiCall& call);
  static Channel::Pending recv(const std::shared_ptr<MpiEngine>& engine, const at::Tensor& tensor, int from, int tag,
                               const MpiCall& call);

  MpiTransfer(std::shared_ptr<MpiEngine> engine, const MpiCall& call, Block block, bool receives);
  ~MpiTransfer() override;
  MpiTransfer(const MpiTransfer&) = delete;
  MpiTransfer& operator=(const MpiTransfer&) = delete;

  void wait(std::chrono::milliseconds timeout) override;
  bool is_completed() override;
  void on_done(std::function<void(std::exception_ptr)> done) override;

 private:
  void post(int peer, int tag);
  bool poll();    // under mutex_: true when nothing is outstanding any more
  void finish();  // under mutex_
  void poll_until_done(std::chrono::milliseconds limit);
  void check_received() const;
  void settle(std::unique_lock<std::mutex>& lock);

  const std::shared_ptr<MpiEngine> engine_;
  const MpiCall call_;
  const Block block_;
  const bool receives_;

  std::mutex mutex_;
  std::vector<MPI_Request> requests_;
  std::vector<MPI_Status> statuses_;
  bool done_ = false;
  std::exception_ptr error_;
  std::vector<std::function<void(std::exception_ptr)>> callbacks_;
};

}  // namespace accel::detail
