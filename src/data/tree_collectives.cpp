#include <accel/tree_collectives.hpp>

#include "comm/agreement.hpp"
#include "comm/ops.hpp"
#include "core/message.hpp"
#include "runtime/session.hpp"

#include <accel/error.hpp>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cstring>

namespace accel::detail {
namespace {

[[noreturn]] void usage_error(const Group& group, const char* call, const std::string& text) {
  throw UsageError(message(site_of(group), call, text));
}

template <class T>
T reduced_number(T number, ReduceOp op, c10::ScalarType dtype, const Group& group, const SourceLocation& where) {
  at::Tensor tensor = at::full({1}, number, c10::TensorOptions(dtype).device(control_device(group)));
  all_reduce(tensor, {.op = op, .factor = 1.0, .purpose = Purpose::kUser}, group, where);
  return tensor.item<T>();
}

/// The dimension from the front, if this tensor has it.
std::optional<std::int64_t> dimension_of(const at::Tensor& tensor, std::int64_t dim) {
  const std::int64_t from_front = dim < 0 ? dim + tensor.dim() : dim;
  return from_front >= 0 && from_front < tensor.dim() ? std::optional(from_front) : std::nullopt;
}

at::Tensor padded(const at::Tensor& tensor, std::int64_t dim, std::int64_t size, double value, bool first) {
  const std::int64_t missing = size - tensor.size(dim);
  if (missing == 0) return tensor;
  std::vector<std::int64_t> shape = tensor.sizes().vec();
  shape[static_cast<std::size_t>(dim)] = missing;
  const at::Tensor filling = at::full(shape, value, tensor.options().requires_grad(false));
  return first ? at::cat({filling, tensor}, dim) : at::cat({tensor, filling}, dim);
}

}  // namespace

std::string text_of_shape(const at::Tensor& tensor) {
  return cat(c10::toString(tensor.scalar_type()), " ", tensor.sizes());
}

void agree_on_text(const std::string& description, const std::string& problem, const Group& group, const char* call,
                   const SourceLocation& where) {
  agree_on({.description = description,
            .problem = problem,
            .thing = "structure",
            .remedy = "give trees of one structure on every rank"},
           group, call, where);
}

std::string text_of_rows(std::int64_t found, std::int64_t expected) {
  return cat("expected the ", expected, " rows of the batch at hand in everything that is gathered, found ",
             found < 0 ? std::string("a tensor without dimensions") : cat(found),
             "; give one row for each sample of the batch, and gather numbers of a whole batch with gather()");
}

at::Tensor gather_rows(const at::Tensor& tensor, const Group& group, const SourceLocation& where) {
  const at::Tensor rows = tensor.dim() == 0 ? tensor.detach().reshape({1}) : tensor.detach();
  return group.size() == 1 ? rows : at::cat(all_gather(rows, Purpose::kUser, group, where));
}

at::Tensor reduced(const at::Tensor& tensor, ReduceOp op, const Group& group, const SourceLocation& where) {
  at::Tensor result = tensor.detach().clone();
  all_reduce(result, {.op = op, .factor = 1.0, .purpose = Purpose::kUser}, group, where);
  return result;
}
double reduced(double number, ReduceOp op, const Group& group, const SourceLocation& where) {
  return reduced_number(number, op, c10::kDouble, group, where);
}
std::int64_t reduced(std::int64_t number, ReduceOp op, const Group& group, const SourceLocation& where) {
  return reduced_number(number, op, c10::kLong, group, where);
}

void broadcast_into(at::Tensor& tensor, int root, const Group& group, const SourceLocation& where) {
  tensor = tensor.detach().clone();
  broadcast(tensor, root, Purpose::kUser, group, where);
}

// A problem travels in place of the bytes, since the other ranks wait for either.
std::vector<std::string> gather_bytes(const std::string& bytes, const std::string& problem, const Group& group,
                                      const char* call, const SourceLocation& where) {
  auto all = all_gather_text(problem.empty() ? "b" + bytes : "p" + problem, Purpose::kUser, group, where);
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank].front() == 'p') usage_error(group, call, cat("rank ", rank, ": ", all[rank].substr(1), place(where)));
  for (std::string& each : all) each.erase(0, 1);
  return all;
}

std::string broadcast_bytes(const std::string& bytes, const std::string& problem, int root, const Group& group,
                            const char* call, const SourceLocation& where) {
  const std::string& text = problem.empty() ? bytes : problem;
  const auto size = static_cast<std::int64_t>(text.size());
  const c10::Device device = control_device(group);
  at::Tensor header = at::tensor({size, std::int64_t{problem.empty() ? 0 : 1}}, c10::TensorOptions(c10::kLong));
  header = header.to(device);
  broadcast(header, root, Purpose::kUser, group, where);
  header = header.to(c10::kCPU);
  const auto* const numbers = header.const_data_ptr<std::int64_t>();

  at::Tensor buffer = at::empty({numbers[0]}, c10::TensorOptions(c10::kByte));
  if (group.rank() == root) std::memcpy(buffer.mutable_data_ptr(), text.data(), text.size());
  buffer = buffer.to(device);
  if (numbers[0] > 0) broadcast(buffer, root, Purpose::kUser, group, where);
  buffer = buffer.to(c10::kCPU);
  std::string result(static_cast<const char*>(buffer.const_data_ptr()), static_cast<std::size_t>(numbers[0]));
  if (numbers[1] != 0) usage_error(group, call, cat("rank ", root, ": ", result, place(where)));
  return result;
}

void check_root(int root, const Group& group, const char* call) {
  if (root < 0 || root >= group.size())
    usage_error(group, call,
                cat("expected 0 <= root < ", group.size(), ", found ", root, "; name a rank of the group"));
}

std::string origin_of(std::size_t rank) {
  return cat("the bytes of rank ", rank);
}

void pad_to_largest(const std::vector<at::Tensor*>& tensors, const PadOptions& options, const Group& group,
                    const SourceLocation& where) {
  if (group.size() == 1 || tensors.empty()) return;
  const auto count = static_cast<std::int64_t>(tensors.size());
  at::Tensor mine = at::empty({count, 2}, c10::TensorOptions(c10::kLong));
  auto* number = mine.data_ptr<std::int64_t>();
  for (const at::Tensor* tensor : tensors) {
    const bool has = tensor->defined() && dimension_of(*tensor, options.dim);
    *number++ = tensor->defined() ? tensor->dim() : -1;
    *number++ = has ? tensor->size(options.dim) : 0;
  }
  const c10::Device device = control_device(group);
  at::Tensor all = at::empty({group.size(), count, 2}, c10::TensorOptions(c10::kLong).device(device));
  all_gather_into(all, mine.to(device), Purpose::kControl, group, where);
  all = all.to(c10::kCPU);
  const auto sizes = all.accessor<std::int64_t, 3>();
  for (std::int64_t at = 0; at < count; ++at)
    for (int rank = 1; rank < group.size(); ++rank)
      if (sizes[rank][at][0] != sizes[0][at][0])
        usage_error(group, "pad_across_processes",
                    cat("expected tensors with equally many dimensions on all ranks, found ", sizes[0][at][0],
                        " on rank 0 and ", sizes[rank][at][0], " on rank ", rank, " (tensor ", at,
                        "); add the missing ones with unsqueeze", place(where)));
  for (std::int64_t at = 0; at < count; ++at) {
    at::Tensor& tensor = *tensors[static_cast<std::size_t>(at)];
    const auto dim = tensor.defined() ? dimension_of(tensor, options.dim) : std::nullopt;
    if (!dim) continue;
    std::int64_t largest = 0;
    for (int rank = 0; rank < group.size(); ++rank) largest = std::max(largest, sizes[rank][at][1]);
    tensor = padded(tensor, *dim, largest, options.pad_index, options.pad_first);
  }
}

void pad_to_multiple(at::Tensor& tensor, std::int64_t num_processes, std::int64_t dim) {
  if (num_processes < 1)
    throw UsageError(message(job_site(), "pad_input_tensors",
                             cat("expected num_processes >= 1, found ", num_processes, "; give the number of parts")));
  const auto which = tensor.defined() ? dimension_of(tensor, dim) : std::nullopt;
  if (!which) return;
  const std::int64_t size = tensor.size(*which);
  tensor = padded(tensor, *which, (size + num_processes - 1) / num_processes * num_processes, 0.0, false);
}

Share share_of(std::int64_t length, const SplitOptions& options, const Group& group) {
  const std::int64_t each = length / group.size();
  const std::int64_t rest = length % group.size();
  const std::int64_t rank = group.rank();
  Share share{.begin = rank * each + std::min(rank, rest)};
  share.end = share.begin + each + (rank < rest ? 1 : 0);
  if (options.apply_padding && rest > 0 && rank >= rest) share.repeats = 1;
  return share;
}

void take_share(at::Tensor& tensor, const Share& share) {
  const at::Tensor part = tensor.narrow(0, share.begin, share.end - share.begin);
  tensor = share.repeats == 0 ? part : at::cat({part, tensor.narrow(0, tensor.size(0) - 1, 1)});
}

void check_same_length(std::int64_t length, std::int64_t& expected, const Group& group) {
  if (expected < 0) expected = length;
  if (length != expected)
    usage_error(group, "split_between_processes",
                cat("expected parts of one length, found ", expected, " and ", length,
                    "; give lists and tensors with an entry for each sample"));
}

}  // namespace accel::detail
