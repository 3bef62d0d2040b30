#include "comm/mpi_backend.hpp"

#include "comm/backend_work.hpp"
#include "comm/check.hpp"
#include "comm/followed.hpp"
#include "comm/mpi_channel.hpp"
#include "device/libtorch_compat.hpp"

#include <accel/error.hpp>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <algorithm>
#include <utility>

namespace accel::detail {
namespace {

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

class MpiBackend final : public c10d::Backend {
 public:
  MpiBackend(std::shared_ptr<MpiChannel> channel, const GroupOptions& options)
      : c10d::Backend(channel->engine().ring().rank, channel->engine().ring().size),
        channel_(std::move(channel)),
        options_(c10::make_intrusive<Options>("accel-mpi", options.timeout)) {}

  const std::string getBackendName() const override { return "accel-mpi"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override {
    const at::Tensor& tensor = only(tensors, "allreduce");
    const ReduceSpec spec = spec_of(opts.reduceOp, tensor, "allreduce");
    return work(channel_->all_reduce(numbers_of(tensor), spec, call(opts)), c10d::OpType::ALLREDUCE, {tensor});
  }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override {
    const at::Tensor& tensor = only(tensors, "broadcast");
    check_root(opts.rootRank, "broadcast");
    return work(channel_->broadcast(numbers_of(tensor), static_cast<int>(opts.rootRank), call(opts)),
                c10d::OpType::BROADCAST, {tensor});
  }

  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override {
    const at::Tensor& input = only(inputs, "allgather");
    const Tensors parts = only_list(outputs, "allgather");
    for (const at::Tensor& part : parts) check_like(part, input, "allgather");
    const at::Tensor flat = at::empty({getSize(), input.numel()}, input.options());
    auto pending = followed_by(channel_->all_gather_into(numbers_of(flat), numbers_of(input), call(opts)),
                               [flat, parts] { deal(flat, parts); });
    return work(std::move(pending), c10d::OpType::ALLGATHER, parts);
  }

  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override {
    check(input, "_allgather_base");
    check(output, "_allgather_base");
    check_size(output, input, "_allgather_base");
    return work(channel_->all_gather_into(numbers_of(output), numbers_of(input), call(opts)),
                c10d::OpType::_ALLGATHER_BASE, {output});
  }

  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& opts) override {
    const at::Tensor& output = only(outputs, "reduce_scatter");
    const Tensors parts = only_list(inputs, "reduce_scatter");
    for (const at::Tensor& part : parts) check_like(part, output, "reduce_scatter");
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const at::Tensor flat = at::stack(parts);
    const ReduceSpec spec = spec_of(opts.reduceOp, output, "reduce_scatter");
    return work(channel_->reduce_scatter(numbers_of(output), numbers_of(flat), spec, call(opts)),
                c10d::OpType::REDUCE_SCATTER, {output});
  }

  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) override {
    check(input, "_reduce_scatter_base");
    check(output, "_reduce_scatter_base");
    check_size(input, output, "_reduce_scatter_base");
    const ReduceSpec spec = spec_of(opts.reduceOp, input, "_reduce_scatter_base");
    return work(channel_->reduce_scatter(numbers_of(output), numbers_of(input), spec, call(opts)),
                c10d::OpType::_REDUCE_SCATTER_BASE, {output});
  }

  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override {
    const at::Tensor& tensor = only(tensors, "reduce");
    check_root(opts.rootRank, "reduce");
    const ReduceSpec spec = spec_of(opts.reduceOp, tensor, "reduce");
    return work(channel_->reduce(numbers_of(tensor), static_cast<int>(opts.rootRank), spec, call(opts)),
                c10d::OpType::REDUCE, {tensor});
  }

  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override {
    const at::Tensor& input = only(inputs, "gather");
    check_root(opts.rootRank, "gather");
    const bool receives = opts.rootRank == getRank();
    const Tensors parts = rooted_list(outputs, receives, "gather");
    for (const at::Tensor& part : parts) check_like(part, input, "gather");
    const at::Tensor flat = receives ? at::empty({getSize(), input.numel()}, input.options()) : at::Tensor();
    const at::Tensor numbers = numbers_of(input);
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(getSize()), numbers.numel());
    auto pending = followed_by(channel_->gather(receives ? numbers_of(flat) : flat, numbers, counts,
                                                static_cast<int>(opts.rootRank), call(opts)),
                               [flat, parts] { deal(flat, parts); });
    return work(std::move(pending), c10d::OpType::GATHER, parts);
  }

  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& opts) override {
    const at::Tensor& output = only(outputs, "scatter");
    check_root(opts.rootRank, "scatter");
    const bool gives = opts.rootRank == getRank();
    const Tensors parts = rooted_list(inputs, gives, "scatter");
    for (const at::Tensor& part : parts) check_like(part, output, "scatter");
    return work(channel_->scatter(numbers_of(output), gives ? numbers_of(joined(parts)) : at::Tensor(),
                                  static_cast<int>(opts.rootRank), call(opts)),
                c10d::OpType::SCATTER, {output});
  }

  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_rows,
                        std::vector<std::int64_t>& input_rows, const c10d::AllToAllOptions& opts) override {
    check(input, "alltoall_base");
    check(output, "alltoall_base");
    if (input.scalar_type() != output.scalar_type())
      refuse("alltoall_base", cat("expected tensors of one dtype, found ", c10::toString(input.scalar_type()), " and ",
                                  c10::toString(output.scalar_type())));
    const at::Tensor to = numbers_of(output);
    const at::Tensor from = numbers_of(input);
    if (input_rows.empty() && output_rows.empty() && from.numel() != to.numel())
      refuse("alltoall_base", cat("expected tensors of one size, found ", input.sizes(), " and ", output.sizes()));
    // Whether others gave splits is not known here, so that equal ones are like any.
    const Splits splits{split(from, input_rows), split(to, output_rows)};
    return work(channel_->all_to_all(to, from, splits, call(opts)), c10d::OpType::ALLTOALL_BASE, {output});
  }

  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override {
    check_each(outputs, inputs, "alltoall");
    const at::Tensor from = numbers_of(joined(inputs));
    Splits splits;
    std::int64_t elements = 0;
    for (const at::Tensor& input : inputs) splits.sent.push_back(numbers_of(input).numel());
    for (const at::Tensor& output : outputs) {
      splits.received.push_back(numbers_of(output).numel());
      elements += output.numel();
    }
    const at::Tensor flat = at::empty({elements}, outputs.front().options());
    auto pending = followed_by(channel_->all_to_all(numbers_of(flat), from, splits, call(opts)),
                               [flat, parts = outputs] { deal(flat, parts); });
    return work(std::move(pending), c10d::OpType::ALLTOALL, outputs);
  }

  WorkPtr barrier(const c10d::BarrierOptions& opts) override {
    return work(channel_->barrier(call(opts)), c10d::OpType::BARRIER, {});
  }

  WorkPtr send(Tensors& tensors, int to, int tag) override {
    const at::Tensor& tensor = only(tensors, "send");
    check_peer(to, "send");
    return work(channel_->send(numbers_of(tensor), to, tag, {Purpose::kUser, true, {}}), c10d::OpType::SEND, {tensor});
  }

  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    const at::Tensor& tensor = only(tensors, "recv");
    check_peer(from, "recv");
    return work(channel_->recv(numbers_of(tensor), from, tag, {Purpose::kUser, true, {}}), c10d::OpType::RECV,
                {tensor});
  }

 private:
  WorkPtr work(Channel::Pending pending, c10d::OpType type, Tensors results) const {
    return backend_work(std::move(pending), getRank(), type, std::move(results));
  }

  template <class OpOptions>
  static CallOptions call(const OpOptions& options) {
    return {Purpose::kUser, is_async(options), {}};
  }

  [[noreturn]] void refuse(const char* name, const std::string& text) const {
    throw UsageError(message({getRank(), getSize()}, name, text));
  }

  void check(const at::Tensor& tensor, const char* name) const {
    if (const std::string defect = defect_of(tensor, "tensor"); !defect.empty()) refuse(name, defect);
    if (!tensor.device().is_cpu())
      refuse(name, cat("expected a tensor on the CPU, found ", tensor.device(), "; move it with tensor.cpu()"));
  }

  void check_like(const at::Tensor& part, const at::Tensor& like, const char* name) const {
    check(part, name);
    if (part.numel() != like.numel() || part.scalar_type() != like.scalar_type())
      refuse(name, cat("expected tensors of ", like.numel(), " elements of ", c10::toString(like.scalar_type()),
                       ", found ", part.numel(), " of ", c10::toString(part.scalar_type())));
  }

  void check_size(const at::Tensor& large, const at::Tensor& small, const char* name) const {
    if (large.numel() != getSize() * small.numel() || large.scalar_type() != small.scalar_type())
      refuse(name,
             cat("expected ", getSize(), " x ", small.numel(), " elements of ", c10::toString(small.scalar_type()),
                 ", found ", large.numel(), " of ", c10::toString(large.scalar_type())));
  }

  void check_root(std::int64_t root, const char* name) const {
    if (root < 0 || root >= getSize()) refuse(name, cat("expected a root in 0..", getSize() - 1, ", found ", root));
  }

  void check_peer(int peer, const char* name) const {
    if (peer < 0 || peer >= getSize() || peer == getRank())
      refuse(name, cat("expected another rank in 0..", getSize() - 1, ", found ", peer));
  }

  const at::Tensor& only(const Tensors& tensors, const char* name) const {
    if (tensors.size() != 1) refuse(name, cat("expected one tensor, found ", tensors.size()));
    check(tensors.front(), name);
    return tensors.front();
  }

  const Tensors& only_list(const std::vector<Tensors>& lists, const char* name) const {
    if (lists.size() != 1 || lists.front().size() != static_cast<std::size_t>(getSize()))
      refuse(name, cat("expected one list of ", getSize(), " tensors, found ", lists.size(), " lists"));
    return lists.front();
  }

  // The list of the root; the others give none.
  Tensors rooted_list(const std::vector<Tensors>& lists, bool is_root, const char* name) const {
    if (is_root) return only_list(lists, name);
    if (!lists.empty()) refuse(name, cat("expected no list of tensors but on the root, found ", lists.size()));
    return {};
  }

  void check_each(const Tensors& outputs, const Tensors& inputs, const char* name) const {
    const auto size = static_cast<std::size_t>(getSize());
    if (outputs.size() != size || inputs.size() != size)
      refuse(name, cat("expected ", size, " tensors each, found ", outputs.size(), " and ", inputs.size()));
    for (const Tensors* list : {&outputs, &inputs})
      for (const at::Tensor& tensor : *list) {
        check(tensor, name);
        if (tensor.scalar_type() != inputs.front().scalar_type())
          refuse(name, cat("expected tensors of one dtype, found ", c10::toString(inputs.front().scalar_type()),
                           " and ", c10::toString(tensor.scalar_type())));
      }
  }

  // Elements for each rank, of rows in dimension 0; no rows: equal shares.
  std::vector<std::int64_t> split(const at::Tensor& numbers, const std::vector<std::int64_t>& rows) const {
    const std::int64_t all_rows = numbers.dim() == 0 ? 1 : numbers.size(0);
    const auto size = static_cast<std::size_t>(getSize());
    if (rows.empty()) {
      if (all_rows % getSize() != 0)
        refuse("alltoall_base", cat("expected a multiple of ", size, " rows, found ", all_rows));
      return std::vector<std::int64_t>(size, numbers.numel() / getSize());
    }
    std::int64_t sum = 0;
    for (const std::int64_t count : rows) sum += count;
    if (rows.size() != size || sum != all_rows || *std::min_element(rows.begin(), rows.end()) < 0)
      refuse("alltoall_base",
             cat("expected ", size, " splits that add up to the ", all_rows, " rows, found ", c10::IntArrayRef(rows)));
    std::vector<std::int64_t> elements;
    for (const std::int64_t count : rows) elements.push_back(all_rows == 0 ? 0 : numbers.numel() / all_rows * count);
    return elements;
  }

  // All elements behind one another, and back.
  static at::Tensor joined(const Tensors& parts) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    Tensors flat;
    for (const at::Tensor& part : parts) flat.push_back(part.reshape(-1));
    return at::cat(flat);
  }
  static void deal(const at::Tensor& joined, const Tensors& parts) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    std::int64_t first = 0;
    for (const at::Tensor& part : parts) {
      part.copy_(joined.view(-1).narrow(0, first, part.numel()).view(part.sizes()));
      first += part.numel();
    }
  }

  ReduceSpec spec_of(const c10d::ReduceOp& op, const at::Tensor& tensor, const char* name) const {
    ReduceSpec spec;
    const bool sums = op.op_ == c10d::ReduceOp::SUM || op.op_ == c10d::ReduceOp::AVG;
    if (tensor.is_complex() && !sums)
      refuse(name, cat("expected SUM or AVG for complex numbers, found another operation on ",
                       c10::toString(tensor.scalar_type())));
    switch (op.op_) {
      case c10d::ReduceOp::SUM:
        return spec;
      case c10d::ReduceOp::AVG:
        spec.op = ReduceOp::kAvg;
        break;
      case c10d::ReduceOp::PREMUL_SUM:
        spec.factor = factor_of(op);
        break;
      case c10d::ReduceOp::PRODUCT:
        spec.op = ReduceOp::kProduct;
        return spec;
      case c10d::ReduceOp::MIN:
        spec.op = ReduceOp::kMin;
        return spec;
      case c10d::ReduceOp::MAX:
        spec.op = ReduceOp::kMax;
        return spec;
      default:
        refuse(name, "expected SUM, AVG, PREMUL_SUM, PRODUCT, MIN or MAX, found a bitwise operation");
    }
    if (!tensor.is_floating_point() && !tensor.is_complex())
      refuse(name,
             cat("expected a floating dtype for AVG and PREMUL_SUM, found ", c10::toString(tensor.scalar_type())));
    return spec;
  }

  const std::shared_ptr<MpiChannel> channel_;
  const c10::intrusive_ptr<Options> options_;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_mpi_backend(std::shared_ptr<MpiChannel> channel, const GroupOptions& options) {
  return c10::make_intrusive<MpiBackend>(std::move(channel), options);
}

}  // namespace accel::detail
