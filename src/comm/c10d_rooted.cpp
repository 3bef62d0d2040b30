#include "comm/c10d_channel_impl.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

namespace accel::detail {
namespace {

// Elements `first` up to `first + count` of a contiguous tensor.
at::Tensor part(const at::Tensor& tensor, std::int64_t first, std::int64_t count) {
  return tensor.view(-1).narrow(0, first, count);
}

// The rows of [rows, length] that hold `counts` elements each, one behind the other, in a contiguous tensor.
void unpad(const at::Tensor& padded, const std::vector<std::int64_t>& counts, const at::Tensor& output) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  std::int64_t first = 0;
  for (std::size_t row = 0; row < counts.size(); ++row) {
    part(output, first, counts[row]).copy_(padded[static_cast<std::int64_t>(row)].narrow(0, 0, counts[row]));
    first += counts[row];
  }
}

}  // namespace

Channel::Pending C10dChannel::reduce(const at::Tensor& tensor, int root, const ReduceSpec& spec,
                                     const CallOptions& call) {
  const bool receives = site_.rank == root;
  Block block(tensor, Block::Content::kKeep);
  const Reduce reduce = reduce_of(spec);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto start_with = [&](bool keeps_inputs) {
    return std::vector<at::Tensor>{receives || keeps_inputs ? block.tensor() : block.tensor().clone()};
  };
  std::function<void()> last = receives ? finish(block, reduce.factor_left) : [block] {};
  std::vector<at::Tensor> tensors = start_with(keeps_inputs_);
  c10d::ReduceOptions options = with<c10d::ReduceOptions>(call);
  options.reduceOp = reduce.op;
  options.rootRank = root;
  return run_or(
      "reduce", Operation::kReduce, bytes_of(tensor), call, [&] { return backend_->reduce(tensors, options); },
      [last, tensors] { last(); },
      [&] {
        std::vector<at::Tensor> all = start_with(false);
        c10d::AllreduceOptions everywhere = with<c10d::AllreduceOptions>(call);
        everywhere.reduceOp = reduce.op;
        return begin(
            "reduce", call, false, [&] { return backend_->allreduce(all, everywhere); }, [last, all] { last(); });
      });
}

// Backends gather equal lengths: what is shorter is padded.
Channel::Pending C10dChannel::gather(const at::Tensor& output, const at::Tensor& input,
                                     const std::vector<std::int64_t>& counts, int root, const CallOptions& call) {
  const std::int64_t longest = *std::max_element(counts.begin(), counts.end());
  if (longest == 0) {
    count(Operation::kGather, 0, call);
    return nullptr;
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const bool receives = site_.rank == root;
  at::Tensor given = at::zeros({longest}, input.options().requires_grad(false));
  given.narrow(0, 0, input.numel()).copy_(input.reshape(-1));
  const auto rows = [&] { return at::empty({site_.size, longest}, given.options()); };
  const at::Tensor gathered = receives ? rows() : at::Tensor();
  std::vector<std::vector<at::Tensor>> outputs;
  if (receives) outputs.push_back(gathered.unbind());
  std::vector<at::Tensor> inputs{given};
  c10d::GatherOptions options = with<c10d::GatherOptions>(call);
  options.rootRank = root;
  const auto take = [output, counts, receives, given](const at::Tensor& from) {
    if (receives) unpad(from, counts, output);
  };
  return run_or(
      "gather", Operation::kGather, bytes_of(input), call, [&] { return backend_->gather(outputs, inputs, options); },
      [take, gathered] { take(gathered); },
      [&] {
        at::Tensor all = rows();
        const auto everywhere = with<c10d::AllgatherOptions>(call);
        return begin(
            "gather", call, false, [&] { return backend_->_allgather_base(all, given, everywhere); },
            [take, all] { take(all); });
      });
}

Channel::Pending C10dChannel::scatter(const at::Tensor& output, const at::Tensor& input, int root,
                                      const CallOptions& call) {
  const bool gives = site_.rank == root;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  // On the root the output may lie in the input, which backends do not allow.
  const Block to(gives ? at::empty_like(output, at::MemoryFormat::Contiguous) : output, Block::Content::kOverwritten);
  const at::Tensor from =
      gives ? Block(input, Block::Content::kKeep).tensor().view({site_.size, output.numel()}) : at::Tensor();
  std::vector<at::Tensor> outputs{to.tensor().view(-1)};
  std::vector<std::vector<at::Tensor>> inputs;
  if (gives) inputs.push_back(from.unbind());
  c10d::ScatterOptions options = with<c10d::ScatterOptions>(call);
  options.rootRank = root;
  return run_or(
      "scatter", Operation::kScatter, bytes_of(gives ? input : output), call,
      [&] { return backend_->scatter(outputs, inputs, options); },
      [to, from, output, gives] {
        const at::AutoDispatchBelowADInplaceOrView below;
        if (gives)
          output.copy_(to.tensor());
        else
          to.copy_back();
      },
      [&] {
        std::vector<at::Tensor> all{
            gives ? from : at::empty({site_.size, output.numel()}, output.options().requires_grad(false))};
        c10d::BroadcastOptions everywhere = with<c10d::BroadcastOptions>(call);
        everywhere.rootRank = root;
        return begin(
            "scatter", call, false, [&] { return backend_->broadcast(all, everywhere); },
            [all, output, rank = site_.rank] {
              const at::AutoDispatchBelowADInplaceOrView below;
              output.copy_(all[0][rank].view(output.sizes()));
            });
      });
}

Channel::Pending C10dChannel::all_to_all(const at::Tensor& output, const at::Tensor& input, const Splits& splits,
                                         const CallOptions& call) {
  const Block to(output, Block::Content::kOverwritten);
  const Block from(input, Block::Content::kKeep);
  at::Tensor flat_output = to.tensor().view(-1);
  at::Tensor flat_input = from.tensor().view(-1);
  std::vector<std::int64_t> received = splits.equal ? std::vector<std::int64_t>() : splits.received;
  std::vector<std::int64_t> sent = splits.equal ? std::vector<std::int64_t>() : splits.sent;
  const auto options = with<c10d::AllToAllOptions>(call);
  return run_or(
      "all_to_all", Operation::kAllToAll, bytes_of(input), call,
      [&] { return backend_->alltoall_base(flat_output, flat_input, received, sent, options); },
      [to, from] { to.copy_back(); }, [&] { return pad_and_exchange(to, from.tensor(), splits, call); });
}

// Every rank learns what goes to any, in slices of the longest, and takes what came to it.
Channel::Pending C10dChannel::pad_and_exchange(const Block& to, const at::Tensor& input, const Splits& splits,
                                               const CallOptions& call) {
  if (splits.longest == 0) return nullptr;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  at::Tensor given = at::zeros({site_.size, splits.longest}, input.options().requires_grad(false));
  std::int64_t first = 0;
  for (std::size_t rank = 0; rank < splits.sent.size(); ++rank) {
    given[static_cast<std::int64_t>(rank)].narrow(0, 0, splits.sent[rank]).copy_(part(input, first, splits.sent[rank]));
    first += splits.sent[rank];
  }
  at::Tensor all = at::empty({site_.size, site_.size, splits.longest}, given.options());
  const auto options = with<c10d::AllgatherOptions>(call);
  return begin(
      "all_to_all", call, false, [&] { return backend_->_allgather_base(all, given, options); },
      [to, all, given, received = splits.received, rank = site_.rank] {
        unpad(all.select(1, rank), received, to.tensor());
        to.copy_back();
      });
}

}  // namespace accel::detail
