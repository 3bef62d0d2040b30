#include "comm/mpi_channel.hpp"

#include "comm/mpi_transfer.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace accel::detail {
namespace {

MpiCall describe(const char* name, Operation operation, std::int64_t bytes, const CallOptions& call) {
  return {.name = name, .operation = operation, .purpose = call.purpose, .bytes = bytes, .where = call.where};
}

MpiCall on_stage(MpiCall call) {
  call.transport = Transport::kShared;
  call.meets = true;
  call.grace = kMeetingGrace;
  return call;
}

std::byte* bytes_at(const Block& block) {
  return static_cast<std::byte*>(block.data());
}

std::vector<std::int64_t> in_bytes(std::vector<std::int64_t> counts, std::int64_t element) {
  for (std::int64_t& count : counts) count *= element;
  return counts;
}

Channel::Pending complete(Channel::Pending pending, const CallOptions& call) {
  if (call.async) return pending;
  pending->wait(std::chrono::milliseconds::zero());
  return nullptr;
}

}  // namespace

bool MpiChannel::staged(Operation operation, std::int64_t bytes) const {
  return board_ && bytes <= board_->ranks().limits.of(operation);
}

// The bodies hold their tensors: a worker may still be in the call when the caller has left it with a TimeoutError.

Channel::Pending MpiChannel::all_reduce(const at::Tensor& tensor, const ReduceSpec& spec, const CallOptions& call) {
  const Reduction reduction{tensor.scalar_type(), spec.op, spec.factor};
  if (staged(Operation::kAllReduce, bytes_of(tensor)))
    return engine_->call(on_stage(describe("all_reduce", Operation::kAllReduce, bytes_of(tensor), call)), call.async,
                         [block = Block(tensor, Block::Content::kKeep), reduction, board = board_](const Ring&) {
                           board->all_reduce(bytes_at(block), block.tensor().numel(), block.tensor().element_size(),
                                             reduction);
                           block.copy_back();
                         });
  return engine_->call(describe("all_reduce", Operation::kAllReduce, bytes_of(tensor), call), call.async,
                       [block = Block(tensor, Block::Content::kKeep), reduction](const Ring& ring) {
                         all_reduce_buffer(block.data(), block.tensor().numel(), reduction, ring);
                         block.copy_back();
                       });
}

Channel::Pending MpiChannel::broadcast(const at::Tensor& tensor, int root, const CallOptions& call) {
  const bool sends = engine_->ring().rank == root;
  const auto content = sends ? Block::Content::kKeep : Block::Content::kOverwritten;
  if (staged(Operation::kBroadcast, bytes_of(tensor)))
    return engine_->call(on_stage(describe("broadcast", Operation::kBroadcast, bytes_of(tensor), call)), call.async,
                         [block = Block(tensor, content), root, sends, board = board_](const Ring&) {
                           board->broadcast(bytes_at(block), bytes_of(block.tensor()), root);
                           if (!sends) block.copy_back();
                         });
  return engine_->call(describe("broadcast", Operation::kBroadcast, bytes_of(tensor), call), call.async,
                       [block = Block(tensor, content), root, sends](const Ring& ring) {
                         broadcast_buffer(block.data(), bytes_of(block.tensor()), root, ring);
                         if (!sends) block.copy_back();
                       });
}

Channel::Pending MpiChannel::all_gather_into(const at::Tensor& output, const at::Tensor& input,
                                             const CallOptions& call) {
  if (staged(Operation::kAllGather, bytes_of(input)))
    return gather_on_stage("all_gather_into", output, input,
                           std::vector<std::int64_t>(static_cast<std::size_t>(engine_->ring().size), bytes_of(input)),
                           call);
  return engine_->call(
      describe("all_gather_into", Operation::kAllGather, bytes_of(input), call), call.async,
      [to = Block(output, Block::Content::kOverwritten), from = Block(input, Block::Content::kKeep)](const Ring& ring) {
        all_gather_buffer(to.data(), from.data(), bytes_of(from.tensor()), ring);
        to.copy_back();
      });
}

Channel::Pending MpiChannel::all_gather_rows(const at::Tensor& output, const at::Tensor& input,
                                             const std::vector<std::int64_t>& rows, const CallOptions& call) {
  std::int64_t all_rows = 0;
  for (const std::int64_t count : rows) all_rows += count;
  std::vector<std::int64_t> bytes;
  for (const std::int64_t count : rows) bytes.push_back(all_rows == 0 ? 0 : bytes_of(output) / all_rows * count);
  // The longest decides, which all ranks know.
  if (staged(Operation::kAllGather, *std::max_element(bytes.begin(), bytes.end())))
    return gather_on_stage("all_gather", output, input, std::move(bytes), call);
  return engine_->call(describe("all_gather", Operation::kAllGather, bytes_of(input), call), call.async,
                       [to = Block(output, Block::Content::kOverwritten), from = Block(input, Block::Content::kKeep),
                        bytes = std::move(bytes)](const Ring& ring) {
                         all_gather_ragged_buffer(to.data(), from.data(), bytes, ring);
                         to.copy_back();
                       });
}

Channel::Pending MpiChannel::gather_on_stage(const char* name, const at::Tensor& output, const at::Tensor& input,
                                             std::vector<std::int64_t> bytes, const CallOptions& call) {
  return engine_->call(on_stage(describe(name, Operation::kAllGather, bytes_of(input), call)), call.async,
                       [to = Block(output, Block::Content::kOverwritten), from = Block(input, Block::Content::kKeep),
                        bytes = std::move(bytes), board = board_](const Ring&) {
                         board->all_gather(bytes_at(to), bytes_at(from), bytes);
                         to.copy_back();
                       });
}

Channel::Pending MpiChannel::reduce_scatter(const at::Tensor& output, const at::Tensor& input, const ReduceSpec& spec,
                                            const CallOptions& call) {
  const Reduction reduction{input.scalar_type(), spec.op, spec.factor};
  if (staged(Operation::kReduceScatter, bytes_of(output)))
    return engine_->call(on_stage(describe("reduce_scatter", Operation::kReduceScatter, bytes_of(input), call)),
                         call.async,
                         [to = Block(output, Block::Content::kOverwritten), from = Block(input, Block::Content::kKeep),
                          reduction, board = board_](const Ring&) {
                           board->reduce_scatter(bytes_at(to), bytes_at(from), to.tensor().numel(),
                                                 to.tensor().element_size(), reduction);
                           to.copy_back();
                         });
  return engine_->call(describe("reduce_scatter", Operation::kReduceScatter, bytes_of(input), call), call.async,
                       [to = Block(output, Block::Content::kOverwritten), from = Block(input, Block::Content::kKeep),
                        reduction](const Ring& ring) {
                         reduce_scatter_buffer(to.data(), from.data(), to.tensor().numel(), reduction, ring);
                         to.copy_back();
                       });
}

// The stage has no part in what follows: one rank reads or writes what all ranks have, or all pairs differ.

Channel::Pending MpiChannel::reduce(const at::Tensor& tensor, int root, const ReduceSpec& spec,
                                    const CallOptions& call) {
  const Reduction reduction{tensor.scalar_type(), spec.op, spec.factor};
  const bool receives = engine_->ring().rank == root;
  return engine_->call(describe("reduce", Operation::kReduce, bytes_of(tensor), call), call.async,
                       [block = Block(tensor, Block::Content::kKeep), reduction, root, receives](const Ring& ring) {
                         reduce_to_root(block.data(), block.tensor().numel(), reduction, root, ring);
                         if (receives) block.copy_back();
                       });
}

Channel::Pending MpiChannel::gather(const at::Tensor& output, const at::Tensor& input,
                                    const std::vector<std::int64_t>& counts, int root, const CallOptions& call) {
  return engine_->call(
      describe("gather", Operation::kGather, bytes_of(input), call), call.async,
      [output, from = Block(input, Block::Content::kKeep),
       bytes = in_bytes(counts, static_cast<std::int64_t>(input.element_size())), root](const Ring& ring) {
        gather_to_root(ring.rank == root ? output.mutable_data_ptr() : nullptr, from.data(), bytes, root, ring);
      });
}

Channel::Pending MpiChannel::scatter(const at::Tensor& output, const at::Tensor& input, int root,
                                     const CallOptions& call) {
  std::optional<Block> from;
  if (engine_->ring().rank == root) from.emplace(input, Block::Content::kKeep);
  return engine_->call(
      describe("scatter", Operation::kScatter, bytes_of(from ? input : output), call), call.async,
      [to = Block(output, Block::Content::kOverwritten), from = std::move(from), root](const Ring& ring) {
        scatter_from_root(to.data(), from ? from->data() : nullptr, bytes_of(to.tensor()), root, ring);
        to.copy_back();
      });
}

Channel::Pending MpiChannel::all_to_all(const at::Tensor& output, const at::Tensor& input, const Splits& splits,
                                        const CallOptions& call) {
  const auto element = static_cast<std::int64_t>(input.element_size());
  Splits bytes{in_bytes(splits.sent, element), in_bytes(splits.received, element), splits.equal, splits.longest};
  if (bytes.longest != Splits::kUnknown) bytes.longest *= element;
  return engine_->call(describe("all_to_all", Operation::kAllToAll, bytes_of(input), call), call.async,
                       [to = Block(output, Block::Content::kOverwritten), from = Block(input, Block::Content::kKeep),
                        bytes = std::move(bytes)](const Ring& ring) {
                         exchange_buffers(to.data(), from.data(), bytes, ring);
                         to.copy_back();
                       });
}

Channel::Pending MpiChannel::barrier(const CallOptions& call) {
  if (board_)
    return engine_->call(on_stage(describe("barrier", Operation::kBarrier, 0, call)), call.async,
                         [board = board_](const Ring&) { board->barrier(); });
  return engine_->call(describe("barrier", Operation::kBarrier, 0, call), call.async,
                       [](const Ring& ring) { require_mpi(MPI_Barrier(ring.communicator), "MPI_Barrier"); });
}

Channel::Pending MpiChannel::send(const at::Tensor& tensor, int to, int tag, const CallOptions& call) {
  return complete(
      MpiTransfer::send(engine_, tensor, to, tag, describe("send", Operation::kSend, bytes_of(tensor), call)), call);
}

Channel::Pending MpiChannel::recv(const at::Tensor& tensor, int from, int tag, const CallOptions& call) {
  return complete(
      MpiTransfer::recv(engine_, tensor, from, tag, describe("recv", Operation::kReceive, bytes_of(tensor), call)),
      call);
}

}  // namespace accel::detail
