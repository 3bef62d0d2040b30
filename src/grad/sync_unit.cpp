#include "grad/sync_unit.hpp"

#include "core/message.hpp"
#include "device/libtorch_compat.hpp"
#include "grad/round.hpp"
#include "runtime/session.hpp"

#include <accel/error.hpp>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

namespace accel::detail {
namespace {

/// A part of a flat buffer that autograd does not know as a view: torch's own zero_grad refuses to detach those.
at::Tensor window_into(const at::Tensor& flat, const Bucket::Slot& slot, c10::IntArrayRef sizes) {
  const at::Tensor view = flat.narrow(0, slot.offset, slot.numel).view(sizes);
  return at::empty({0}, flat.options()).set_(flat.storage(), view.storage_offset(), view.sizes(), view.strides());
}

}  // namespace

std::shared_ptr<SyncUnit> SyncUnit::create(std::string name, std::vector<NamedTensor> parameters, BucketLimits limits) {
  std::shared_ptr<SyncUnit> unit(new SyncUnit(std::move(name), std::move(parameters), limits));
  for (std::size_t index = 0; index < unit->named_.size(); ++index) unit->attach(index);
  return unit;
}

SyncUnit::SyncUnit(std::string name, std::vector<NamedTensor> parameters, BucketLimits limits)
    : name_(std::move(name)),
      named_(std::move(parameters)),
      parameters_(std::make_unique<Parameter[]>(named_.size())),
      limits_(limits),
      order_(named_.size()) {
  // Backward reaches the last registered parameters first, as a rule.
  std::iota(order_.rbegin(), order_.rend(), std::size_t{0});
  for (std::size_t index = 0; index < named_.size(); ++index) {
    parameters_[index].tensor = named_[index].tensor;
    parameters_[index].trainable = named_[index].tensor.requires_grad();
  }
  lay_out();
  sign();
}

void SyncUnit::attach(std::size_t index) {
  Parameter& parameter = parameters_[index];
  if (!parameter.trainable) return;
  auto node = torch::autograd::impl::grad_accumulator(parameter.tensor);
  if (node == parameter.node) return;
  parameter.node = std::move(node);
  // Weak, so that a hook on a node that a graph still holds does nothing once the unit is gone.
  parameter.node->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
      [self = weak_from_this(), index](const torch::autograd::variable_list& outputs,
                                       const torch::autograd::variable_list&) {
        if (const auto unit = self.lock()) unit->reached(index);
        return outputs;
      }));
}

void SyncUnit::lay_out() {
  std::map<std::pair<c10::ScalarType, std::string>, int> kinds;
  std::vector<ParameterFacts> facts(named_.size());
  std::vector<std::size_t> order;
  for (const std::size_t index : order_) {
    const Parameter& parameter = parameters_[index];
    if (!parameter.trainable) continue;
    order.push_back(index);
    const std::pair key(parameter.tensor.scalar_type(), parameter.tensor.device().str());
    const int kind = kinds.emplace(key, static_cast<int>(kinds.size())).first->second;
    facts[index] = {parameter.tensor.numel(), static_cast<std::int64_t>(parameter.tensor.element_size()), kind};
  }
  for (std::size_t index = 0; index < named_.size(); ++index) parameters_[index].view = at::Tensor();
  buckets_.clear();
  for (const Bucket& planned : layout_buckets(facts, order, limits_)) {
    const at::Tensor& sample = parameters_[planned.slots.front().parameter].tensor;
    FlatBucket& bucket = buckets_.emplace_back();
    bucket.flat = at::zeros({planned.numel}, sample.options().requires_grad(false).layout(c10::kStrided));
    bucket.slots = planned.slots;
    for (const Bucket::Slot& slot : planned.slots) {
      parameters_[slot.parameter].bucket = buckets_.size() - 1;
      bucket.parameters.push_back(slot.parameter);
    }
    make_views(bucket);
  }
  placed_ = false;
}

void SyncUnit::make_views(const FlatBucket& bucket) {
  for (const Bucket::Slot& slot : bucket.slots) {
    Parameter& parameter = parameters_[slot.parameter];
    parameter.view = window_into(bucket.flat, slot, parameter.tensor.sizes());
  }
}

void SyncUnit::place(const Group& group) {
  std::vector<at::Tensor> flats;
  for (const FlatBucket& bucket : buckets_) flats.push_back(bucket.flat);
  const auto buffers = reduce_buffers(flats, group);
  for (std::size_t index = 0; index < buckets_.size(); ++index) {
    FlatBucket& bucket = buckets_[index];
    bucket.buffer = buffers[index];
    if (bucket.buffer->flat().is_same(bucket.flat)) continue;
    const at::Tensor left = std::exchange(bucket.flat, bucket.buffer->flat());
    make_views(bucket);
    // What was gathered in this window so far has moved along.
    for (const Bucket::Slot& slot : bucket.slots) {
      Parameter& parameter = parameters_[slot.parameter];
      const at::Tensor& grad = parameter.tensor.grad();
      if (!grad.defined() || !grad.has_storage() || !grad.is_alias_of(left)) continue;
      if (grad.is_conj() || grad.is_neg()) parameter.view.copy_(grad.detach());
      parameter.tensor.mutable_grad() = parameter.view;
    }
  }
  placed_ = true;
}

std::string SyncUnit::description() const {
  std::string text;
  for (std::size_t index = 0; index < named_.size(); ++index) {
    const at::Tensor& tensor = parameters_[index].tensor;
    text += cat(named_[index].name, " ", tensor.sizes(), " ", c10::toString(tensor.scalar_type()),
                parameters_[index].trainable ? " trainable\n" : " frozen\n");
  }
  return text;
}

void SyncUnit::sign() {
  signature_ = stable_hash(description());
}

void SyncUnit::follow_requires_grad() {
  bool changed = false;
  for (std::size_t index = 0; index < named_.size(); ++index) {
    Parameter& parameter = parameters_[index];
    const bool trainable = parameter.tensor.requires_grad();
    changed = changed || trainable != parameter.trainable || (trainable && !parameter.fits_view());
    parameter.trainable = trainable;
    attach(index);  // a tensor whose data moved to another device has a new node
  }
  if (!changed) return;
  use_what_is_there();  // no hook has seen what a thawed parameter holds already
  lay_out();
  sign();
}

void SyncUnit::reorder(const std::vector<std::int64_t>& order) {
  order_.assign(order.begin(), order.end());
  lay_out();
  ++rounds_;  // so that it is asked for once
}

std::vector<std::int64_t> SyncUnit::order_reached() const {
  std::vector<std::int64_t> order(reached_order_.begin(), reached_order_.end());
  std::vector<bool> listed(named_.size(), false);
  for (const auto index : order) listed[static_cast<std::size_t>(index)] = true;
  for (const std::size_t index : order_)
    if (!listed[index]) order.push_back(static_cast<std::int64_t>(index));
  return order;
}

std::optional<std::string> SyncUnit::touched_outside() const {
  const std::int64_t index = outside_.load(std::memory_order_relaxed);
  if (index < 0) return std::nullopt;
  return name_of(static_cast<std::size_t>(index));
}

void SyncUnit::forget_outside() {
  outside_.store(-1, std::memory_order_relaxed);
}

void SyncUnit::set_mode(Mode mode, Round* round) {
  const std::lock_guard lock(gate_);
  mode_ = mode;
  round_ = round;
}

void SyncUnit::reached(std::size_t index) {
  const std::lock_guard lock(gate_);
  Parameter& parameter = parameters_[index];
  switch (mode_) {
    case Mode::kOutside: {
      if (!parameter.tensor.grad().defined()) return;  // autograd passed an undefined gradient
      parameter.used.store(true, std::memory_order_relaxed);
      std::int64_t nothing = -1;
      outside_.compare_exchange_strong(nothing, static_cast<std::int64_t>(index), std::memory_order_relaxed);
      return;
    }
    case Mode::kQuiet:
      if (!parameter.tensor.grad().defined()) return;
      parameter.used.store(true, std::memory_order_relaxed);
      // A gradient with a graph (create_graph) is left alone until the round: a view could not carry the graph.
      if (parameter.view.defined() && !parameter.tensor.grad().requires_grad()) {
        move_into_view(parameter);
        parameter.tensor.mutable_grad() = parameter.view;
      }
      return;
    case Mode::kRound:
      round_->reached(*this, index);
      return;
  }
}

// Leaves `.grad` as it is; the caller decides what it becomes.
void SyncUnit::move_into_view(Parameter& parameter) const {
  const at::Tensor& grad = parameter.tensor.grad();
  const at::NoGradGuard no_grad;
  if (!grad.defined()) {
    parameter.view.zero_();
    return;
  }
  if (grad.layout() != c10::kStrided) {
    const auto index = static_cast<std::size_t>(&parameter - parameters_.get());
    throw UsageError(
        message(job_site(), "backward",
                cat(name_, ": expected dense gradients, found a ", grad.layout(), " gradient of parameter '",
                    name_of(index), "'; make the layer's gradient dense (EmbeddingOptions::sparse(false))")));
  }
  // A lazy conjugate or negative of the view has its memory and not its values.
  const bool lazy = grad.is_conj() || grad.is_neg();
  const bool aliased = grad.data_ptr() == parameter.view.data_ptr();
  if (aliased && !lazy && grad.strides() == parameter.view.strides()) return;
  parameter.view.copy_(aliased ? grad.detach().clone() : grad.detach());
}

void SyncUnit::use_what_is_there() {
  for (std::size_t index = 0; index < named_.size(); ++index)
    if (parameters_[index].trainable && parameters_[index].tensor.grad().defined()) parameters_[index].used = true;
}

void SyncUnit::inherit(const SyncUnit& earlier) {
  for (std::size_t old = 0; old < earlier.named_.size(); ++old) {
    if (!earlier.parameters_[old].used) continue;
    for (std::size_t index = 0; index < named_.size(); ++index)
      if (parameters_[index].tensor.is_same(earlier.parameters_[old].tensor)) parameters_[index].used = true;
  }
}

void SyncUnit::drop_window() {
  for (std::size_t index = 0; index < named_.size(); ++index) {
    parameters_[index].used = false;
    parameters_[index].tensor.mutable_grad() = at::Tensor();
  }
  forget_outside();
}

std::int64_t SyncUnit::gradient_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& bucket : buckets_) bytes += static_cast<std::int64_t>(bucket.flat.nbytes());
  return bytes;
}

}  // namespace accel::detail
