#include "comm/c10d_channel.hpp"

#include "comm/c10d_channel_impl.hpp"

#include <algorithm>
#include <utility>

namespace accel::detail {
namespace {

using c10d::ReduceOp;

ReduceOp::RedOpType plain_op(accel::ReduceOp op) {
  switch (op) {
    case accel::ReduceOp::kMin:
      return ReduceOp::MIN;
    case accel::ReduceOp::kMax:
      return ReduceOp::MAX;
    case accel::ReduceOp::kProduct:
      return ReduceOp::PRODUCT;
    default:
      return ReduceOp::SUM;
  }
}

}  // namespace

C10dChannel::C10dChannel(c10::intrusive_ptr<c10d::Backend> backend, Site site, std::shared_ptr<StatsTable> stats,
                         std::chrono::milliseconds timeout)
    : backend_(std::move(backend)), site_(site), stats_(std::move(stats)), timeout_(timeout) {
  const std::string name = backend_->getBackendName();
  scales_itself_ = name == "nccl" || name == "accel-mpi";
  keeps_inputs_ = scales_itself_;
  transport_ = name == "nccl" ? Transport::kNccl : Transport::kOther;
}

Channel::Pending C10dChannel::all_reduce(const at::Tensor& tensor, const ReduceSpec& spec, const CallOptions& call) {
  const Block block(tensor, Block::Content::kKeep);
  c10d::AllreduceOptions options = with<c10d::AllreduceOptions>(call);
  const Reduce reduce = reduce_of(spec);
  options.reduceOp = reduce.op;
  std::vector<at::Tensor> tensors{block.tensor()};
  return run(
      "all_reduce", Operation::kAllReduce, bytes_of(tensor), call,
      [&] { return backend_->allreduce(tensors, options); }, finish(block, reduce.factor_left));
}

Channel::Pending C10dChannel::broadcast(const at::Tensor& tensor, int root, const CallOptions& call) {
  const Block block(tensor, Block::Content::kKeep);
  c10d::BroadcastOptions options = with<c10d::BroadcastOptions>(call);
  options.rootRank = root;
  std::vector<at::Tensor> tensors{block.tensor()};
  return run(
      "broadcast", Operation::kBroadcast, bytes_of(tensor), call, [&] { return backend_->broadcast(tensors, options); },
      finish(block, 1.0));
}

Channel::Pending C10dChannel::all_gather_into(const at::Tensor& output, const at::Tensor& input,
                                              const CallOptions& call) {
  const Block to(output, Block::Content::kOverwritten);
  const Block from(input, Block::Content::kKeep);
  at::Tensor flat_output = to.tensor().view(-1);
  at::Tensor flat_input = from.tensor().view(-1);
  const auto options = with<c10d::AllgatherOptions>(call);
  return run(
      "all_gather_into", Operation::kAllGather, bytes_of(input), call,
      [&] { return backend_->_allgather_base(flat_output, flat_input, options); }, finish(to, 1.0));
}

// c10d backends differ in whether lengths may: rows are padded to the longest.
Channel::Pending C10dChannel::all_gather_rows(const at::Tensor& output, const at::Tensor& input,
                                              const std::vector<std::int64_t>& rows, const CallOptions& call) {
  const std::int64_t longest = *std::max_element(rows.begin(), rows.end());
  std::int64_t all_rows = 0;
  for (const std::int64_t count : rows) all_rows += count;
  if (all_rows == 0) return nullptr;
  const std::int64_t width = output.numel() / all_rows;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  at::Tensor padded = at::zeros({longest * width}, output.options());
  padded.narrow(0, 0, input.numel()).copy_(input.reshape(-1));
  at::Tensor gathered = at::empty({site_.size, longest * width}, output.options());
  return followed_by(all_gather_into(gathered, padded, call), [output, gathered, rows, width] {
    const at::AutoDispatchBelowADInplaceOrView below;
    const at::Tensor flat = output.view(-1);
    std::int64_t first = 0;
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
      const std::int64_t count = rows[rank] * width;
      flat.narrow(0, first, count).copy_(gathered[static_cast<std::int64_t>(rank)].narrow(0, 0, count));
      first += count;
    }
  });
}

Channel::Pending C10dChannel::reduce_scatter(const at::Tensor& output, const at::Tensor& input, const ReduceSpec& spec,
                                             const CallOptions& call) {
  const Block to(output, Block::Content::kOverwritten);
  const Block from(input, Block::Content::kKeep);
  at::Tensor flat_output = to.tensor().view(-1);
  at::Tensor flat_input = from.tensor().view(-1);
  auto options = with<c10d::ReduceScatterOptions>(call);
  const Reduce reduce = reduce_of(spec);
  options.reduceOp = reduce.op;
  return run(
      "reduce_scatter", Operation::kReduceScatter, bytes_of(input), call,
      [&] { return backend_->_reduce_scatter_base(flat_output, flat_input, options); }, finish(to, reduce.factor_left));
}

Channel::Pending C10dChannel::barrier(const CallOptions& call) {
  const auto options = with<c10d::BarrierOptions>(call);
  return run("barrier", Operation::kBarrier, 0, call, [&] { return backend_->barrier(options); }, {});
}

Channel::Pending C10dChannel::send(const at::Tensor& tensor, int to, int tag, const CallOptions& call) {
  std::vector<at::Tensor> tensors{Block(tensor, Block::Content::kKeep).tensor()};
  return run(
      "send", Operation::kSend, bytes_of(tensor), call, [&] { return backend_->send(tensors, to, tag); }, [tensors] {});
}

Channel::Pending C10dChannel::recv(const at::Tensor& tensor, int from, int tag, const CallOptions& call) {
  const Block block(tensor, Block::Content::kOverwritten);
  std::vector<at::Tensor> tensors{block.tensor()};
  return run(
      "recv", Operation::kReceive, bytes_of(tensor), call, [&] { return backend_->recv(tensors, from, tag); },
      finish(block, 1.0));
}

C10dChannel::Reduce C10dChannel::reduce_of(const ReduceSpec& spec) const {
  const bool average = spec.op == accel::ReduceOp::kAvg;
  const double factor = average ? spec.factor / site_.size : spec.factor;
  const bool sums = average || spec.op == accel::ReduceOp::kSum;
  if (!sums || !scales_itself_) return {plain_op(spec.op), factor};
  if (average && spec.factor == 1.0) return {ReduceOp::AVG, 1.0};
  if (factor == 1.0) return {ReduceOp::SUM, 1.0};
  return {premultiplied_sum(factor), 1.0};
}

std::function<void()> C10dChannel::finish(const Block& block, double factor) {
  return [block, factor] {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    if (factor != 1.0) block.tensor().mul_(factor);
    block.copy_back();
  };
}

bool C10dChannel::says_lacking(const std::exception& error) const {
  return std::string(error.what()).find(cat("Backend ", backend_->getBackendName(), " does not support ")) !=
         std::string::npos;
}

void C10dChannel::count(Operation operation, std::int64_t bytes, const CallOptions& call) noexcept {
  stats_->count(operation, call.purpose, transport_, static_cast<std::uint64_t>(bytes));
}

std::unique_ptr<Channel> make_c10d_channel(c10::intrusive_ptr<c10d::Backend> backend, Site site,
                                           std::shared_ptr<StatsTable> stats, const GroupOptions& options) {
  return std::make_unique<C10dChannel>(std::move(backend), site, std::move(stats), options.timeout);
}

}  // namespace accel::detail
