#include "accelerator/accelerator_impl.hpp"
#include "accelerator/broadcast.hpp"
#include "comm/agreement.hpp"
#include "comm/ops.hpp"
#include "core/message.hpp"

#include <accel/error.hpp>
#include <accel/tree_collectives.hpp>

#include <ATen/ops/empty.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace accel {
namespace detail {
namespace {

constexpr std::size_t kMostModels = 64;  // a bit for each in the header

constexpr const char* kCall = "join_uneven_inputs";

}  // namespace

void AcceleratorImpl::open_join(const JoinOptions& options) {
  if (join_)
    usage_error(kCall, "expected no open guard, found one; let it go out of scope first, or use one for all loops");
  if (options_.sync_each_batch)
    usage_error(kCall,
                "expected sync_each_batch = false, found true; under this guard ranks send gradients where a window "
                "closes: make the Accelerator without it");
  join_.emplace().options = options;
  training_->join = true;
  loaders_->set_join(JoinHooks{.exhausted = [this] { stay_joined(); }, .even_batches = options.even_batches});
}

void AcceleratorImpl::close_join() noexcept {
  join_.reset();
  training_->join = false;
  loaders_->set_join(std::nullopt);
}

void AcceleratorImpl::refuse_in_join(const char* call) const {
  if (join_ && !loaders_->empty())
    usage_error(call,
                "expected no collective call in a loop under join_uneven_inputs, found this one, which ranks that have "
                "run out of data would not make; make it after the loop, or let the guard end first");
}

RoundModels AcceleratorImpl::models_of(const std::vector<Target>& targets, const char* call) const {
  RoundModels models;
  if (!join_) return models;
  for (const Target& target : targets) {
    if (target.model->index >= kMostModels)
      usage_error(call, cat("expected at most ", kMostModels, " models under join_uneven_inputs, found ",
                            training_->models.size(), "; prepare only what is trained, or as one model"));
    const std::uint64_t bit = std::uint64_t{1} << target.model->index;
    models.syncing |= bit;
    if (target.closes) models.closing |= bit;
  }
  return models;
}

std::vector<AcceleratorImpl::Target> AcceleratorImpl::targets_of(const RoundModels& models) const {
  std::vector<Target> targets;
  for (const auto& model : training_->models)
    if (model->index < kMostModels && (models.syncing >> model->index & 1) != 0)
      targets.push_back({.model = model.get(),
                         .syncs = true,
                         .closes = (models.closing >> model->index & 1) != 0,
                         .counts = false,
                         .holds_its_own = false});
  return targets;
}

void AcceleratorImpl::note_round(const RoundOpening& opening) {
  if (!join_) return;
  join_->somebody_ran_out = join_->somebody_ran_out || opening.some_joined;
  join_->last_active = opening.first_active;
}

// What this rank still holds goes into the first round; after it, it has nothing. Its own gradients are of no use: it
// takes no step, and gets what the others' steps made in the end.
bool AcceleratorImpl::take_part_joined() {
  std::vector<Target> targets;
  try {
    const auto describe = [&] { return targets.empty() ? std::string() : description_of(targets); };
    const HeaderCall ask{group(), kCall, describe, where_};
    const RoundOpening opening = open_round(Stance::kJoined, {}, {}, ask);
    if (opening.over) return false;
    note_round(opening);
    targets = targets_of(opening.models);
    const auto totals = exchange_totals(opening, headers_of(targets), ask);
    settle(targets, totals, kCall);
    const bool nothing_held =
        std::all_of(totals.begin(), totals.end(), [](const auto& each) { return each.held == 0; });
    if (!nothing_held) reduce(targets, totals, kCall, {});
    finish(targets, totals);
    for (const Target& target : targets) {
      if (!target.closes) continue;
      target.model->drop_window();
      target.model->generation = 0;
    }
  } catch (const AbandonedError&) {  // told by those whose backward it was; here there is nobody to catch it
    if (targets.empty())
      for (const auto& model : training_->models)
        if (model->window.open()) targets.push_back({.model = model.get()});
    drop(targets);
  }
  return true;
}

void AcceleratorImpl::stay_joined() {
  if (alone()) return;
  where_ = SourceLocation();
  while (take_part_joined()) {
  }
  // Here all ranks know the same; a rank that was active to the end has noted those that were not before it came here.
  if (std::exchange(join_->somebody_ran_out, false)) catch_up();
}

void AcceleratorImpl::catch_up() {
  const int root = join_->last_active;
  const auto optimizers = this->optimizers();
  const auto schedulers = this->schedulers();
  agree_on({.description = cat(optimizers.size(), " optimizers\n", schedulers.size(), " schedulers\n"),
            .problem = {},
            .thing = "prepared optimizers and schedulers",
            .remedy = "keep what prepare returned alive on every rank until the loop has ended"},
           group(), kCall, where_);
  for (const auto& model : training_->models) {
    broadcast_tensors(model->ref.parameters(), root, Placement::kInto, group(), where_);
    broadcast_tensors(model->ref.buffers(), root, Placement::kInto, group(), where_);
  }
  // Schedulers first: what they do to options of an optimizer is in that optimizer's state.
  for (const auto& scheduler : schedulers)
    scheduler->catch_up(broadcast_tree(scheduler->steps(), root, group(), where_));
  for (const auto& optimizer : optimizers) {
    const bool mine = group().rank() == root;
    std::string problem;
    std::string bytes;
    try {
      if (mine) bytes = optimizer->state_bytes();
    } catch (const std::exception& error) {
      problem = error.what();
    }
    const std::int64_t steps = broadcast_tree(optimizer->steps(), root, group(), where_);
    bytes = broadcast_bytes(bytes, problem, root, group(), kCall, where_);
    if (!mine) optimizer->take_over(steps, bytes);
  }
  for (const auto& scheduler : schedulers)
    scheduler->set_pending(broadcast_tree(scheduler->pending(), root, group(), where_));
}

}  // namespace detail

JoinUnevenInputs::JoinUnevenInputs(std::shared_ptr<detail::AcceleratorImpl> accelerator, const JoinOptions& options)
    : accelerator_(std::move(accelerator)) {
  accelerator_->open_join(options);
}
JoinUnevenInputs::~JoinUnevenInputs() {
  accelerator_->close_join();
}
int JoinUnevenInputs::last_active_rank() const {
  return accelerator_->last_active_rank();
}

JoinUnevenInputs Accelerator::join_uneven_inputs(const JoinOptions& options) {
  return {shared(), options};
}

}  // namespace accel
