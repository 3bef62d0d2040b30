#include "comm/check.hpp"
#include "comm/group_impl.hpp"

#include <accel/collectives.hpp>
#include <accel/error.hpp>
#include <accel/source_location.hpp>

#include <utility>

namespace accel {
namespace detail {
namespace {

using Pending = Channel::Pending;

Pending start_all_reduce(const at::Tensor& tensor, const ReduceSpec& spec, const Group& group, bool async,
                         const SourceLocation& where) {
  const CallSite site{"all_reduce", group, where};
  check_output(site, tensor, "tensor");
  check_reduce(site, tensor, spec);
  Channel& channel = channel_for(site, tensor.device());
  mark_written(tensor);
  return channel.all_reduce(numbers_of(tensor), spec, {spec.purpose, async, where});
}

Pending start_broadcast(const at::Tensor& tensor, int root, Purpose purpose, const Group& group, bool async,
                        const SourceLocation& where) {
  const CallSite site{"broadcast", group, where};
  check_output(site, tensor, "tensor");
  check_rank(site, root, "root");
  Channel& channel = channel_for(site, tensor.device());
  if (group.rank() != root) mark_written(tensor);
  return channel.broadcast(numbers_of(tensor), root, {purpose, async, where});
}

Pending start_all_gather_into(const at::Tensor& output, const at::Tensor& tensor, Purpose purpose, const Group& group,
                              bool async, const SourceLocation& where) {
  const CallSite site{"all_gather_into", group, where};
  check_tensor(site, tensor, "tensor");
  check_output(site, output, "output");
  check_gathered(site, output, "output", tensor, "tensor");
  Channel& channel = channel_for(site, tensor.device());
  mark_written(output);
  return channel.all_gather_into(numbers_of(output), numbers_of(tensor), {purpose, async, where});
}

Pending start_reduce_scatter(const at::Tensor& output, const at::Tensor& input, const ReduceSpec& spec,
                             const Group& group, bool async, const SourceLocation& where) {
  const CallSite site{"reduce_scatter", group, where};
  check_tensor(site, input, "input");
  check_output(site, output, "output");
  check_gathered(site, input, "input", output, "output");
  check_reduce(site, input, spec);
  Channel& channel = channel_for(site, input.device());
  mark_written(output);
  return channel.reduce_scatter(numbers_of(output), numbers_of(input), spec, {spec.purpose, async, where});
}

Pending start_reduce(const at::Tensor& tensor, int root, const ReduceSpec& spec, const Group& group, bool async,
                     const SourceLocation& where) {
  const CallSite site{"reduce", group, where};
  check_output(site, tensor, "tensor");
  check_rank(site, root, "root");
  check_reduce(site, tensor, spec);
  Channel& channel = channel_for(site, tensor.device());
  if (group.rank() == root) mark_written(tensor);
  return channel.reduce(numbers_of(tensor), root, spec, {spec.purpose, async, where});
}

Pending start_scatter(const at::Tensor& output, const at::Tensor& input, int root, const Group& group, bool async,
                      const SourceLocation& where) {
  const CallSite site{"scatter", group, where};
  check_output(site, output, "output");
  check_rank(site, root, "root");
  const bool gives = group.rank() == root;
  if (gives) {
    check_tensor(site, input, "input");
    check_gathered(site, input, "input", output, "output");
  }
  Channel& channel = channel_for(site, output.device());
  mark_written(output);
  return channel.scatter(numbers_of(output), gives ? numbers_of(input) : at::Tensor(), root,
                         {Purpose::kUser, async, where});
}

Pending start_all_to_all(const at::Tensor& output, const at::Tensor& input, const Group& group, bool async,
                         const SourceLocation& where) {
  const CallSite site{"all_to_all", group, where};
  check_tensor(site, input, "input");
  check_output(site, output, "output");
  check_exchanged(site, output, input);
  Channel& channel = channel_for(site, input.device());
  mark_written(output);
  const at::Tensor numbers = numbers_of(input);
  Splits splits{.equal = true, .longest = numbers.numel() / group.size()};
  splits.sent.assign(static_cast<std::size_t>(group.size()), splits.longest);
  splits.received = splits.sent;
  return channel.all_to_all(numbers_of(output), numbers, splits, {Purpose::kUser, async, where});
}

void check_peer(const CallSite& site, int peer, int tag, const char* argument) {
  if (site.group.size() == 1)
    usage_error(site, "expected a group of at least two ranks, found a group of one; it has no other rank to reach");
  check_rank(site, peer, argument);
  if (peer == site.group.rank())
    usage_error(site, cat("expected another rank as `", argument, "`, found this rank (", peer, "); copy the tensor"));
  if (tag < 0) usage_error(site, cat("expected a tag of 0 or more, found ", tag));
}

Pending start_send(const at::Tensor& tensor, int to, const Group& group, int tag, bool async,
                   const SourceLocation& where) {
  const CallSite site{"send", group, where};
  check_tensor(site, tensor, "tensor");
  check_peer(site, to, tag, "to");
  return channel_for(site, tensor.device()).send(numbers_of(tensor), to, tag, {Purpose::kUser, async, where});
}

Pending start_recv(const at::Tensor& tensor, int from, const Group& group, int tag, bool async,
                   const SourceLocation& where) {
  const CallSite site{"recv", group, where};
  check_output(site, tensor, "tensor");
  check_peer(site, from, tag, "from");
  Channel& channel = channel_for(site, tensor.device());
  mark_written(tensor);
  return channel.recv(numbers_of(tensor), from, tag, {Purpose::kUser, async, where});
}

// Control messages go over the CPU where the group has it, and a barrier holds the host, not a stream.
Pending start_barrier(const Group& group, bool async, const SourceLocation& where) {
  const CallSite site{"barrier", group, where};
  return channel_for(site, control_device(group)).barrier({Purpose::kUser, async, where});
}

}  // namespace

void all_reduce(at::Tensor& tensor, const ReduceSpec& spec, const Group& group, const SourceLocation& where) {
  start_all_reduce(tensor, spec, group, false, where);
}

Work all_reduce_async(at::Tensor& tensor, const ReduceSpec& spec, const Group& group, const SourceLocation& where) {
  return Work(start_all_reduce(tensor, spec, group, true, where));
}

void broadcast(at::Tensor& tensor, int root, Purpose purpose, const Group& group, const SourceLocation& where) {
  start_broadcast(tensor, root, purpose, group, false, where);
}

void all_gather_into(at::Tensor& output, const at::Tensor& tensor, Purpose purpose, const Group& group,
                     const SourceLocation& where) {
  start_all_gather_into(output, tensor, purpose, group, false, where);
}

}  // namespace detail

void all_reduce(at::Tensor& tensor, ReduceOp op, const Group& group, SourceLocation where) {
  detail::start_all_reduce(tensor, {.op = op}, group, false, where);
}
Work all_reduce_async(at::Tensor& tensor, ReduceOp op, const Group& group, SourceLocation where) {
  return Work(detail::start_all_reduce(tensor, {.op = op}, group, true, where));
}

void broadcast(at::Tensor& tensor, int root, const Group& group, SourceLocation where) {
  detail::start_broadcast(tensor, root, Purpose::kUser, group, false, where);
}
Work broadcast_async(at::Tensor& tensor, int root, const Group& group, SourceLocation where) {
  return Work(detail::start_broadcast(tensor, root, Purpose::kUser, group, true, where));
}

std::vector<at::Tensor> all_gather(const at::Tensor& tensor, const Group& group, SourceLocation where) {
  return detail::all_gather(tensor, Purpose::kUser, group, where);
}

void all_gather_into(at::Tensor& output, const at::Tensor& tensor, const Group& group, SourceLocation where) {
  detail::start_all_gather_into(output, tensor, Purpose::kUser, group, false, where);
}
Work all_gather_into_async(at::Tensor& output, const at::Tensor& tensor, const Group& group, SourceLocation where) {
  return Work(detail::start_all_gather_into(output, tensor, Purpose::kUser, group, true, where));
}

void reduce_scatter(at::Tensor& output, const at::Tensor& input, ReduceOp op, const Group& group,
                    SourceLocation where) {
  detail::start_reduce_scatter(output, input, {.op = op}, group, false, where);
}
Work reduce_scatter_async(at::Tensor& output, const at::Tensor& input, ReduceOp op, const Group& group,
                          SourceLocation where) {
  return Work(detail::start_reduce_scatter(output, input, {.op = op}, group, true, where));
}

void reduce(at::Tensor& tensor, int root, ReduceOp op, const Group& group, SourceLocation where) {
  detail::start_reduce(tensor, root, {.op = op}, group, false, where);
}
Work reduce_async(at::Tensor& tensor, int root, ReduceOp op, const Group& group, SourceLocation where) {
  return Work(detail::start_reduce(tensor, root, {.op = op}, group, true, where));
}

std::vector<at::Tensor> gather(const at::Tensor& tensor, int root, const Group& group, SourceLocation where) {
  return detail::gather(tensor, root, Purpose::kUser, group, where);
}

void scatter(at::Tensor& output, const at::Tensor& input, int root, const Group& group, SourceLocation where) {
  detail::start_scatter(output, input, root, group, false, where);
}
Work scatter_async(at::Tensor& output, const at::Tensor& input, int root, const Group& group, SourceLocation where) {
  return Work(detail::start_scatter(output, input, root, group, true, where));
}

void all_to_all(at::Tensor& output, const at::Tensor& input, const Group& group, SourceLocation where) {
  detail::start_all_to_all(output, input, group, false, where);
}
Work all_to_all_async(at::Tensor& output, const at::Tensor& input, const Group& group, SourceLocation where) {
  return Work(detail::start_all_to_all(output, input, group, true, where));
}
std::vector<at::Tensor> all_to_all(const std::vector<at::Tensor>& inputs, const Group& group, SourceLocation where) {
  return detail::all_to_all(inputs, Purpose::kUser, group, where);
}

void barrier(const Group& group, SourceLocation where) {
  detail::start_barrier(group, false, where);
}
Work barrier_async(const Group& group, SourceLocation where) {
  return Work(detail::start_barrier(group, true, where));
}

void send(const at::Tensor& tensor, int to, const Group& group, int tag, SourceLocation where) {
  detail::start_send(tensor, to, group, tag, false, where);
}
Work send_async(const at::Tensor& tensor, int to, const Group& group, int tag, SourceLocation where) {
  return Work(detail::start_send(tensor, to, group, tag, true, where));
}
void recv(at::Tensor& tensor, int from, const Group& group, int tag, SourceLocation where) {
  detail::start_recv(tensor, from, group, tag, false, where);
}
Work recv_async(at::Tensor& tensor, int from, const Group& group, int tag, SourceLocation where) {
  return Work(detail::start_recv(tensor, from, group, tag, true, where));
}

}  // namespace accel
