#include "accelerator/accelerator_impl.hpp"
#include "accelerator/broadcast.hpp"
#include "comm/ops.hpp"
#include "core/log.hpp"
#include "core/message.hpp"

#include <accel/source_location.hpp>

#include <algorithm>
#include <utility>

namespace accel {
namespace detail {

std::unique_ptr<OpenGuard> AcceleratorImpl::enter(const std::vector<ModelRef>& models,
                                                  const MicroBatchOptions& options) {
  if (models.empty()) usage_error("accumulate", "expected at least one model, found none; name the models of the loss");
  auto guard = std::make_unique<OpenGuard>();
  for (const ModelRef& ref : models) {
    ModelState& model = state_of(ref, "accumulate");
    if (model.guard != nullptr)
      usage_error("accumulate", cat("expected no open guard on ", model.name,
                                    ", found one; leave its scope first, or name all models in one accumulate(a, b)"));
    if (std::find(guard->models.begin(), guard->models.end(), &model) == guard->models.end())
      guard->models.push_back(&model);
  }
  const AccumulationWindow& first = guard->models.front()->window;
  for (const ModelState* model : guard->models) {
    if (model->window.position() != first.position())
      usage_error("accumulate", cat("expected models at the same micro-batch, found ", guard->models.front()->name,
                                    " at ", first.position(), " and ", model->name, " at ", model->window.position(),
                                    "; close the longer window with finish_window(model), or use a guard for each"));
    if (const auto name = model->window.open() ? model->cleared_parameter() : std::nullopt)
      usage_error("accumulate",
                  cat("expected the gradients of the open window (", model->window.position(),
                      " micro-batches), found that of parameter '", *name, "' of ", model->name,
                      " cleared; use the prepared optimizer's zero_grad(), which waits for the boundary, or "
                      "accelerator.discard_window(model)"));
  }
  notice_no_loader(options);
  if (const std::string uneven = loaders_->note_training(); !uneven.empty())
    log(LogLevel::kWarning, site_of(group()), "accumulate", uneven);
  for (ModelState* model : guard->models)
    if (!model->window.open()) begin_window(*model);
  const bool last = options.last.value_or(false) || (options_.sync_with_dataloader && loaders_->at_end());
  guard->closes = first.closes_next(steps(), last);
  guard->syncs = guard->closes || options_.sync_each_batch;
  sync_gradients_ = guard->closes;
  for (ModelState* model : guard->models) {
    model->guard = guard.get();
    model->held_in_guard = model->synced_in_guard = model->closed_in_guard = false;
  }
  guards_.push_back(guard.get());
  return guard;
}

void AcceleratorImpl::begin_window(ModelState& model) {
  model.divided_by = static_cast<double>(steps());
  notice_left_gradients(model);
  if (alone()) return;
  const auto now = unique_parameters(model.ref);
  const bool same = std::equal(now.begin(), now.end(), model.parameters.begin(), model.parameters.end(),
                               [](const auto& a, const auto& b) { return a.tensor.is_same(b.tensor); });
  if (!same)
    usage_error("accumulate", cat("expected the parameters that ", model.name,
                                  " had when it was prepared, found some replaced, added or removed; call "
                                  "accelerator.refresh(model) on all ranks after such a change"));
  for (const auto& unit : model.units) unit->follow_requires_grad();
  // Under a join guard ranks begin different numbers of windows.
  if (!join_ && std::exchange(model.buffers_due, false) && options_.broadcast_buffers) broadcast_buffers(model);
}

void AcceleratorImpl::broadcast_buffers(ModelState& model) {
  broadcast_tensors(model.ref.buffers(), 0, Placement::kNewData, group(), {});
}

// A loop over a loader that accel does not know ends in an open window, and the last gradients are never used (case 9).
void AcceleratorImpl::notice_no_loader(const MicroBatchOptions& options) {
  if (noticed_no_loader_ || steps() == 1 || !options_.sync_with_dataloader || options.last || !loaders_->empty())
    return;
  noticed_no_loader_ = true;
  log(LogLevel::kWarning, site_of(group()), "accumulate",
      "no prepared loader is being iterated, so the last micro-batch of the data cannot be seen and a short last "
      "window "
      "stays open; prepare the loader, pass {.last = ...} to accumulate, or call finish_window(model) after the loop");
}

// As where a program steps with the optimizer that it gave to prepare: the handle, which never stepped, clears nothing.
void AcceleratorImpl::notice_left_gradients(const ModelState& model) {
  if (noticed_left_gradients_) return;
  for (const auto& each : optimizers_) {
    const auto optimizer = each.lock();
    if (!optimizer || !optimizer->left_gradients(model)) continue;
    noticed_left_gradients_ = true;
    log(LogLevel::kWarning, site_of(group()), "accumulate",
        cat("the gradients of the last window of ", model.name,
            " are still there, and those of this window will be added to them: the prepared optimizer did not step; "
            "call "
            "step() and zero_grad() of what prepare returned, not of the optimizer that was given to it"));
    return;
  }
}

// What a loop that was left inside a window held is lost without a word otherwise.
AcceleratorImpl::~AcceleratorImpl() {
  if (std::uncaught_exceptions() > 0 || group().rank() != 0) return;
  for (const auto& model : training_->models)
    if (model->window.held() > 0)
      log(LogLevel::kWarning, site_of(group()), "accelerator",
          cat("the last ", model->window.held(), " micro-batches of ", model->name,
              " were in a window that never closed, and no step was taken with them; after a loop that ends inside a "
              "window call finish_window(model), optimizer.step() and optimizer.zero_grad(), or pass {.last = true}"));
}

void AcceleratorImpl::leave(OpenGuard& guard) noexcept {
  const bool took_part = guard.skipped || std::any_of(guard.models.begin(), guard.models.end(),
                                                      [](const ModelState* model) { return model->held_in_guard; });
  const bool closed = std::any_of(guard.models.begin(), guard.models.end(),
                                  [](const ModelState* model) { return model->closed_in_guard; });
  for (ModelState* model : guard.models) {
    model->guard = nullptr;
    if (model->closed_in_guard || !took_part) continue;
    // Models of one guard keep step; one that had nothing to close does not stay behind in a window of its own.
    if (closed && model->window.held() == 0)
      model->window.reset();
    else if (!guard.closes || !closed)
      model->window.advance();
    model->mark_gradients();
  }
  std::erase(guards_, &guard);
}

void AcceleratorImpl::end_no_sync(const void* model) noexcept {
  if (ModelState* state = training_->find(model)) --state->quiet;
}

void AcceleratorImpl::skip(OpenGuard& guard) {
  for (const ModelState* model : guard.models)
    if (model->held_in_guard)
      usage_error("skip", cat("expected no backward in this micro-batch, found one for ", model->name,
                              "; skip() stands in for the backward of a micro-batch that has none"));
  if (std::exchange(guard.skipped, true)) return;
  if (!guard.syncs) return;
  std::vector<Target> targets;
  for (ModelState* model : guard.models)
    targets.push_back({.model = model, .syncs = true, .closes = guard.closes, .counts = false, .holds_its_own = false});
  micro_batch(targets, std::nullopt, "skip", {});
}

}  // namespace detail

MicroBatch::MicroBatch(std::shared_ptr<detail::AcceleratorImpl> accelerator, const std::vector<ModelRef>& models,
                       const MicroBatchOptions& options)
    : accelerator_(std::move(accelerator)), guard_(accelerator_->enter(models, options)) {}
MicroBatch::~MicroBatch() {
  accelerator_->leave(*guard_);
}
bool MicroBatch::syncs() const {
  return guard_->syncs;
}
bool MicroBatch::closes_window() const {
  return guard_->closes;
}
void MicroBatch::skip(SourceLocation where) const {
  accelerator_->at(where).skip(*guard_);
}

NoSync::NoSync(std::shared_ptr<detail::AcceleratorImpl> accelerator, const ModelRef& model)
    : accelerator_(std::move(accelerator)), model_(model.key()) {
  ++accelerator_->state_of(model, "no_sync").quiet;
}
NoSync::~NoSync() {
  accelerator_->end_no_sync(model_);
}

}  // namespace accel
