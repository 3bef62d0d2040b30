#pragma once

#include "comm/mpi_engine.hpp"

namespace accel::detail {

/// CPU tensors over the communicator of a group.
class MpiChannel final : public Channel {
 public:
  explicit MpiChannel(std::shared_ptr<MpiEngine> engine) : engine_(std::move(engine)) {}
  ~MpiChannel() override { engine_->retire(); }
  MpiChannel(const MpiChannel&) = delete;
  MpiChannel& operator=(const MpiChannel&) = delete;

  [[nodiscard]] MpiEngine& engine() const { return *engine_; }

  Pending all_reduce(const at::Tensor& tensor, const ReduceSpec& spec, const CallOptions& call) override;
  Pending broadcast(const at::Tensor& tensor, int root, const CallOptions& call) override;
  Pending all_gather_into(const at::Tensor& output, const at::Tensor& input, const CallOptions& call) override;
  Pending all_gather_rows(const at::Tensor& output, const at::Tensor& input, const std::vector<std::int64_t>& rows,
                          const CallOptions& call) override;
  Pending reduce_scatter(const at::Tensor& output, const at::Tensor& input, const ReduceSpec& spec,
                         const CallOptions& call) override;
  Pending barrier(const CallOptions& call) override;
  Pending send(const at::Tensor& tensor, int to, int tag, const CallOptions& call) override;
  Pending recv(const at::Tensor& tensor, int from, int tag, const CallOptions& call) override;

 private:
  const std::shared_ptr<MpiEngine> engine_;
};

}  // namespace accel::detail
