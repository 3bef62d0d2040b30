#pragma once

#include "comm/mpi_engine.hpp"

namespace accel::detail {

/// CPU tensors: by way of the stage of a host that all ranks of the group share, where measurements say that it is
/// faster; else over the communicator of the group.
class MpiChannel final : public Channel {
 public:
  /// @param board  null: none; of use where all ranks are on one host
  MpiChannel(std::shared_ptr<MpiEngine> engine, std::shared_ptr<HostBoard> board)
      : engine_(std::move(engine)), board_(board && board->ranks().one_host() ? std::move(board) : nullptr) {}
  ~MpiChannel() override { engine_->retire(); }
  MpiChannel(const MpiChannel&) = delete;
  MpiChannel& operator=(const MpiChannel&) = delete;

  [[nodiscard]] MpiEngine& engine() const { return *engine_; }
  [[nodiscard]] const std::shared_ptr<MpiEngine>& shared_engine() const { return engine_; }

  Pending all_reduce(const at::Tensor& tensor, const ReduceSpec& spec, const CallOptions& call) override;
  Pending broadcast(const at::Tensor& tensor, int root, const CallOptions& call) override;
  Pending all_gather_into(const at::Tensor& output, const at::Tensor& input, const CallOptions& call) override;
  Pending all_gather_rows(const at::Tensor& output, const at::Tensor& input, const std::vector<std::int64_t>& rows,
                          const CallOptions& call) override;
  Pending reduce_scatter(const at::Tensor& output, const at::Tensor& input, const ReduceSpec& spec,
                         const CallOptions& call) override;
  Pending reduce(const at::Tensor& tensor, int root, const ReduceSpec& spec, const CallOptions& call) override;
  Pending gather(const at::Tensor& output, const at::Tensor& input, const std::vector<std::int64_t>& counts, int root,
                 const CallOptions& call) override;
  Pending scatter(const at::Tensor& output, const at::Tensor& input, int root, const CallOptions& call) override;
  Pending all_to_all(const at::Tensor& output, const at::Tensor& input, const Splits& splits,
                     const CallOptions& call) override;
  Pending barrier(const CallOptions& call) override;
  Pending send(const at::Tensor& tensor, int to, int tag, const CallOptions& call) override;
  Pending recv(const at::Tensor& tensor, int from, int tag, const CallOptions& call) override;

 private:
  Pending gather_on_stage(const char* name, const at::Tensor& output, const at::Tensor& input,
                          std::vector<std::int64_t> bytes, const CallOptions& call);
  [[nodiscard]] bool staged(Operation operation, std::int64_t bytes) const;

  const std::shared_ptr<MpiEngine> engine_;
  const std::shared_ptr<HostBoard> board_;
};

}  // namespace accel::detail
