#include "accelerator/broadcast.hpp"

#include "comm/agreement.hpp"
#include "comm/ops.hpp"
#include "core/message.hpp"
#include "grad/bucket_layout.hpp"

#include <accel/accelerator.hpp>
#include <accel/error.hpp>
#include <accel/source_location.hpp>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace accel {
namespace detail {
namespace {

std::string description_of(const ModelRef& model) {
  std::string text;
  for (const auto& [name, tensor] : model.parameters())
    text += cat("parameter ", name, " ", tensor.sizes(), " ", c10::toString(tensor.scalar_type()),
                tensor.requires_grad() ? " trainable\n" : " frozen\n");
  for (const auto& [name, tensor] : model.buffers())
    text += cat("buffer ", name, " ", tensor.sizes(), " ", c10::toString(tensor.scalar_type()), "\n");
  return text;
}

/// Equal bit by bit: NaN equals itself, and -0 differs from 0.
bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.device() != c10::kCPU) return a.equal(b);
  return std::equal(static_cast<const char*>(a.data_ptr()), static_cast<const char*>(a.data_ptr()) + a.nbytes(),
                    static_cast<const char*>(b.data_ptr()));
}

void hand_over(at::Tensor tensor, const at::Tensor& received, Placement placement) {
  if (placement == Placement::kInto) {
    tensor.copy_(received);
    return;
  }
  if (tensor.is_contiguous() && same_bits(tensor, received)) return;
  // New data in the old tensor: its version does not change, and the memory that a graph saved is left alone.
  tensor.set_data(received.clone());
}

}  // namespace

void check_agreement(const ModelRef& model, const std::string& problem, const Group& group, const char* call,
                     const SourceLocation& where) {
  agree_on({.description = group.size() == 1 ? std::string() : description_of(model),
            .problem = problem,
            .thing = "model",
            .remedy = "build the model alike on every rank"},
           group, call, where);
}

void broadcast_tensors(const std::vector<NamedTensor>& tensors, int root, Placement placement, const Group& group,
                       const SourceLocation& where) {
  if (group.size() == 1 || tensors.empty()) return;
  const at::NoGradGuard no_grad;
  std::map<std::pair<c10::ScalarType, std::string>, int> kinds;
  std::vector<ParameterFacts> facts;
  for (const auto& [name, tensor] : tensors) {
    const std::pair key(tensor.scalar_type(), tensor.device().str());
    const int kind = kinds.emplace(key, static_cast<int>(kinds.size())).first->second;
    facts.push_back({tensor.numel(), static_cast<std::int64_t>(tensor.element_size()), kind});
  }
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (const Bucket& bucket : layout_buckets(facts, order, {})) {
    const at::Tensor& sample = tensors[bucket.slots.front().parameter].tensor;
    at::Tensor flat = at::empty({bucket.numel}, sample.options().requires_grad(false));
    const auto part = [&](const Bucket::Slot& slot) {
      return flat.narrow(0, slot.offset, slot.numel).view(tensors[slot.parameter].tensor.sizes());
    };
    if (group.rank() == root)
      for (const auto& slot : bucket.slots) part(slot).copy_(tensors[slot.parameter].tensor);
    broadcast(flat, root, Purpose::kBuffer, group, where);
    if (group.rank() != root)
      for (const auto& slot : bucket.slots) hand_over(tensors[slot.parameter].tensor, part(slot), placement);
  }
}

}  // namespace detail

void broadcast_parameters(const ModelRef& model, int root, const Group& group, SourceLocation where) {
  if (root < 0 || root >= group.size())
    throw UsageError(detail::message(detail::site_of(group), "broadcast_parameters",
                                     detail::cat("expected 0 <= root < ", group.size(), ", found ", root,
                                                 "; name a rank of the group", detail::place(where))));
  detail::check_agreement(model, {}, group, "broadcast_parameters", where);
  detail::broadcast_tensors(model.parameters(), root, detail::Placement::kInto, group, where);
  detail::broadcast_tensors(model.buffers(), root, detail::Placement::kInto, group, where);
}

}  // namespace accel
