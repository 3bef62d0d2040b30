#include "accelerator/accelerator_impl.hpp"
#include "accelerator/broadcast.hpp"
#include "comm/ops.hpp"
#include "core/message.hpp"
#include "grad/unique_tensors.hpp"

#include <accel/error.hpp>
#include <accel/source_location.hpp>

#include <ATen/MemoryOverlap.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

namespace accel::detail {
namespace {

std::string sparse_problem(const ModelRef& model) {
  const auto sparse = model.sparse_parameters();
  if (sparse.empty()) return {};
  return cat("expected dense gradients, found that parameter '", sparse.front(),
             "' would get sparse ones; build its embedding with sparse(false)");
}

bool overlaps_itself(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == c10::kStrided &&
         at::has_internal_overlap(tensor) == at::MemOverlap::Yes;
}

std::string overlap_problem(const std::string& name) {
  return cat("expected tensors with memory of their own, found that several elements of '", name,
             "' share one place (expand); register tensor.contiguous()");
}

std::string leaf_problem(const ModelRef& model) {
  for (const auto& [name, tensor] : model.parameters())
    if (!tensor.defined() || !tensor.is_leaf())
      return cat("expected leaf tensors as parameters, found that '", name, "' is ",
                 tensor.defined() ? "the result of an operation" : "undefined",
                 "; give a tensor made with requires_grad(true)");
  // One of several elements in one place: what is written to it, by a broadcast or an optimizer, is not what is read.
  for (const auto& [name, tensor] : model.parameters())
    if (overlaps_itself(tensor)) return overlap_problem(name);
  for (const auto& [name, tensor] : model.buffers())
    if (overlaps_itself(tensor)) return overlap_problem(name);
  return {};
}

}  // namespace

std::vector<NamedTensor> AcceleratorImpl::unique_parameters(const ModelRef& model) const {
  return unique_tensors(model.parameters());
}

void AcceleratorImpl::place(const ModelRef& model) const {
  if (!options_.device_placement) return;
  const at::NoGradGuard no_grad;
  auto tensors = model.parameters();
  for (NamedTensor& buffer : model.buffers()) tensors.push_back(std::move(buffer));
  // New data in the same tensors: optimizers and members of the model go on referring to them.
  for (auto& [name, tensor] : tensors)
    if (tensor.device() != device_) tensor.set_data(tensor.to(device_));
}

// A module given by reference may have died and another one come to its address: then no parameter is the same.
bool AcceleratorImpl::is_another(const ModelState& state, const ModelRef& model) const {
  const auto parameters = model.parameters();
  return !state.parameters.empty() &&
         std::none_of(parameters.begin(), parameters.end(), [&](const NamedTensor& parameter) {
           return std::any_of(state.parameters.begin(), state.parameters.end(),
                              [&](const NamedTensor& known) { return known.tensor.is_same(parameter.tensor); });
         });
}

void AcceleratorImpl::prepare_model(const ModelRef& model) {
  refuse_in_join("prepare");
  const ModelState* known = training_->find(model.key());
  if (known != nullptr && !is_another(*known, model)) return;
  const SourceLocation here;
  std::string problem = leaf_problem(model);
  if (problem.empty()) problem = sparse_problem(model);
  check_agreement(model, problem, group(), "prepare", SourceLocation());
  place(model);
  broadcast_tensors(model.parameters(), 0, Placement::kInto, group(), here);
  broadcast_tensors(model.buffers(), 0, Placement::kInto, group(), here);
  auto state = std::make_unique<ModelState>(model);
  state->index = known != nullptr ? known->index : training_->models.size();
  state->parameters = unique_parameters(model);
  state->name = cat("model ", state->index);
  if (!state->parameters.empty()) state->name += cat(" (", state->parameters.front().name, ", ...)");
  if (known != nullptr)
    training_->models[state->index] = std::move(state);
  else
    training_->models.push_back(std::move(state));
  rebuild_units();
}

void AcceleratorImpl::refresh(const ModelRef& model) {
  refuse_in_join("refresh");
  ModelState& state = state_of(model, "refresh");
  const SourceLocation here;
  check_agreement(model, leaf_problem(model), group(), "refresh", SourceLocation());
  place(model);
  broadcast_tensors(model.parameters(), 0, Placement::kInto, group(), here);
  broadcast_tensors(model.buffers(), 0, Placement::kInto, group(), here);
  state.parameters = unique_parameters(model);
  if (state.window.open()) state.mark_gradients();
  rebuild_units();
}

// A parameter belongs to exactly one unit: those with the same set of owning models share one. Units whose parameters
// did not change are kept, with their buckets and what they know of the open window.
void AcceleratorImpl::rebuild_units() {
  if (alone()) return training_->index();
  std::map<std::vector<std::size_t>, std::vector<NamedTensor>> parts;
  std::unordered_map<const void*, std::vector<std::size_t>> owners;
  for (std::size_t index = 0; index < training_->models.size(); ++index)
    for (const NamedTensor& parameter : training_->models[index]->parameters)
      owners[parameter.tensor.unsafeGetTensorImpl()].push_back(index);
  for (std::size_t index = 0; index < training_->models.size(); ++index)
    for (const NamedTensor& parameter : training_->models[index]->parameters)
      if (const auto& of = owners[parameter.tensor.unsafeGetTensorImpl()]; of.front() == index)
        parts[of].push_back(parameter);

  const std::vector<std::shared_ptr<SyncUnit>> earlier = std::exchange(units_, {});
  for (const auto& model : training_->models) model->units.clear();
  for (auto& [of, parameters] : parts) {
    const auto same = std::find_if(earlier.begin(), earlier.end(), [&parameters = parameters](const auto& unit) {
      return std::equal(parameters.begin(), parameters.end(), unit->parameters().begin(), unit->parameters().end(),
                        [](const auto& a, const auto& b) { return a.tensor.is_same(b.tensor); });
    });
    std::shared_ptr<SyncUnit> unit;
    if (same != earlier.end()) {
      unit = *same;
    } else {
      unit = SyncUnit::create(training_->models[of.front()]->name, parameters,
                              {options_.first_bucket_bytes, options_.bucket_bytes});
      for (const auto& old : earlier) unit->inherit(*old);
    }
    units_.push_back(unit);
    for (const std::size_t model : of) training_->models[model]->units.push_back(unit);
  }
  training_->index();
}

// Known for as long as the program holds what prepare returned: an address alone may be another object's by now.
std::shared_ptr<OptimizerState> AcceleratorImpl::prepare_optimizer(std::shared_ptr<torch::optim::Optimizer> optimizer) {
  if (!optimizer) usage_error("prepare", "expected an optimizer, found a null pointer; make the optimizer first");
  for (const auto& known : optimizers())
    if (&known->optimizer() == optimizer.get() && known->has_same_parameters()) return known;
  auto state = std::make_shared<OptimizerState>(std::move(optimizer), training_);
  optimizers_.push_back(state);
  return state;
}

std::vector<std::shared_ptr<OptimizerState>> AcceleratorImpl::optimizers() {
  std::erase_if(optimizers_, [](const auto& each) { return each.expired(); });
  std::vector<std::shared_ptr<OptimizerState>> alive;
  for (const auto& each : optimizers_) alive.push_back(each.lock());
  return alive;
}

std::shared_ptr<SchedulerState> AcceleratorImpl::prepare_scheduler(
    const void* key, std::function<void()> step, std::vector<std::shared_ptr<OptimizerState>> optimizers) {
  std::erase_if(schedulers_, [](const auto& each) { return each.second.expired(); });
  for (const auto& [known, scheduler] : schedulers_)
    if (known == key)
      if (auto state = scheduler.lock()) return state;
  const std::int64_t repeats = options_.scheduler_unit == SchedulerUnit::kPerRank ? group().size() : 1;
  auto state = std::make_shared<SchedulerState>(std::move(step), std::move(optimizers), repeats);
  schedulers_.emplace_back(key, state);
  return state;
}

std::vector<std::shared_ptr<SchedulerState>> AcceleratorImpl::schedulers() {
  std::vector<std::shared_ptr<SchedulerState>> alive;
  for (const auto& each : schedulers_)
    if (auto state = each.second.lock()) alive.push_back(std::move(state));
  return alive;
}

LoaderBinding AcceleratorImpl::loader_binding() const {
  return {.rank = group().rank(),
          .size = group().size(),
          .group = group(),
          .device = device_,
          .device_placement = options_.device_placement,
          .active = loaders_};
}

void AcceleratorImpl::free_memory() {
  if (!guards_.empty())
    usage_error("free_memory", "expected no open guard, found one; leave the scope of the micro-batch first");
  for (const auto& model : training_->models)
    if (model->quiet > 0)
      usage_error("free_memory",
                  cat("expected no no_sync guard, found one on ", model->name, "; leave its scope first"));
  training_->models.clear();
  training_->index();
  units_.clear();
  optimizers_.clear();
  schedulers_.clear();
  roots_.clear();
  sync_gradients_ = true;
}

LoaderBinding loader_binding(const AcceleratorImpl& accelerator) {
  return accelerator.loader_binding();
}

Preparer::Preparer(std::shared_ptr<AcceleratorImpl> accelerator) : accelerator_(std::move(accelerator)) {}
Preparer::~Preparer() = default;

void Preparer::model(const ModelRef& model) {
  accelerator_->prepare_model(model);
}

Optimizer Preparer::optimizer(std::shared_ptr<torch::optim::Optimizer> optimizer) {
  return Optimizer(accelerator_->prepare_optimizer(std::move(optimizer)));
}

Scheduler Preparer::bind_schedule(const void* key, std::function<void()> step,
                                  const std::vector<std::shared_ptr<OptimizerState>>& optimizers) {
  return Scheduler(accelerator_->prepare_scheduler(key, std::move(step), optimizers));
}

std::vector<std::shared_ptr<OptimizerState>> Preparer::optimizers_of_next_schedule() {
  std::vector<std::shared_ptr<OptimizerState>> candidates;
  for (const Optimizer& optimizer : prepared_) candidates.push_back(optimizer.impl());
  if (candidates.empty()) candidates = accelerator_->optimizers();
  const std::size_t index = next_schedule_++;
  if (candidates.size() == 1) return candidates;
  if (candidates.size() == schedules_ && !candidates.empty()) return {candidates[index]};
  accelerator_->usage_error(
      "prepare", cat("expected one optimizer, or as many as schedulers, found ", candidates.size(), " optimizers and ",
                     schedules_, " schedulers; bind each with accelerator.prepare_scheduler(schedule, optimizer)"));
}

}  // namespace accel::detail
