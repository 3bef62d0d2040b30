#include "accelerator/accelerator_impl.hpp"
#include "comm/ops.hpp"
#include "core/log.hpp"
#include "core/message.hpp"
#include "grad/round.hpp"
#include "grad/window_header.hpp"

#include <accel/error.hpp>
#include <accel/source_location.hpp>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <tuple>
#include <utility>

namespace accel::detail {
namespace {

/// What the window's gradients are still to be multiplied by, given what all ranks held; `ranks` is their number. The
/// losses were divided by `steps` already, where they are means.
/// @param all_ranks  divide as if every rank held what the fullest one does
double closing_factor(const TargetTotals& totals, std::int64_t steps, std::int64_t ranks, TailPolicy policy,
                      bool all_ranks) {
  if (totals.empty()) return 1.0;
  if (totals.by_items()) return static_cast<double>(ranks) / static_cast<double>(totals.items);
  const std::int64_t held = all_ranks ? totals.held_most * ranks : totals.held;
  if (policy == TailPolicy::kDivideByConfigured || held == steps * ranks) return 1.0;
  return static_cast<double>(steps * ranks) / static_cast<double>(held);
}

// The numbers as they lie in memory: a real factor is the same for them and for their lazy conjugates or negatives,
// which the foreach operations refuse.
at::Tensor without_lazy_bits(const at::Tensor& gradient) {
  const at::Tensor plain = gradient.is_conj() ? gradient.conj() : gradient;
  return plain.is_neg() ? plain._neg_view() : plain;
}

}  // namespace

void AcceleratorImpl::micro_batch(std::vector<Target>& targets, std::optional<std::int64_t> items, const char* call,
                                  const Run& run) {
  const bool syncs = std::any_of(targets.begin(), targets.end(), [](const Target& target) { return target.syncs; });
  const auto count_all = [&] {
    for (Target& target : targets) count(target, items);
  };
  if (!syncs) {
    if (run) run();
    count_all();
    return;
  }
  if (alone()) {
    try {
      if (run) run();
    } catch (...) {
      for (Target& target : targets)
        if (target.syncs) target.model->drop_window();
      throw;
    }
    count_all();
    std::set<const void*> done;
    for (Target& target : targets)
      if (target.syncs) finish_alone(target, done);
    return;
  }
  std::vector<std::pair<AccumulationWindow, bool>> before;
  for (const Target& target : targets) before.emplace_back(target.model->window, target.model->held_in_guard);
  // Counted before the round, whose header says what this rank holds with this micro-batch.
  count_all();
  std::vector<Target> syncing;
  std::copy_if(targets.begin(), targets.end(), std::back_inserter(syncing),
               [](const Target& each) { return each.syncs; });
  std::vector<TargetTotals> totals;
  try {
    totals = agree(syncing, call);
  } catch (const AbandonedError&) {
    drop(targets);
    throw;
  } catch (...) {  // nothing was sent or run: the micro-batch did not happen
    for (std::size_t at = 0; at < targets.size(); ++at)
      std::tie(targets[at].model->window, targets[at].model->held_in_guard) = before[at];
    throw;
  }
  const bool nothing_held =
      std::all_of(totals.begin(), totals.end(), [](const TargetTotals& total) { return total.held == 0; });
  if (!run && nothing_held) return finish(syncing, totals);  // on no rank: not a byte of gradient is sent
  try {
    reduce(syncing, totals, call, run);
  } catch (const CommError&) {
    throw;
  } catch (...) {  // on every rank, so that no model goes on with a part of this micro-batch
    drop(targets);
    throw;
  }
  finish(syncing, totals);
}

// A rank whose backward cannot even begin tells the others, who are in their header already or will be.
void AcceleratorImpl::announce_failure(std::vector<Target>& targets, const std::string& reason) {
  std::vector<Target> syncing;
  std::copy_if(targets.begin(), targets.end(), std::back_inserter(syncing),
               [](const Target& each) { return each.syncs; });
  if (alone() || syncing.empty()) return;
  // Where no rank began, nothing happened: the call may be mended and made again.
  if (detail::announce_failure(reason, group(), where_) < group().size()) drop(targets);
}

void AcceleratorImpl::finish(std::vector<Target>& targets, const std::vector<TargetTotals>& totals) {
  for (std::size_t at = 0; at < targets.size(); ++at) {
    if (targets[at].model->guard != nullptr) targets[at].model->synced_in_guard = true;
    if (targets[at].closes) close(targets[at], totals[at]);
  }
}

void AcceleratorImpl::count(Target& target, std::optional<std::int64_t> items) {
  ModelState& model = *target.model;
  if (!target.holds_its_own) return;
  if (target.counts) model.window.hold();
  if (items) model.window.add_items(*items);
  if (model.guard != nullptr) {
    model.held_in_guard = true;
  } else if (!target.syncs) {
    // Outside a guard each backward is a micro-batch; those that `.more` ties together are one.
    if (target.counts) model.window.advance();
    model.more_open = model.quiet == 0;
    model.mark_gradients();
  }
}

void AcceleratorImpl::finish_alone(Target& target, std::set<const void*>& done) {
  ModelState& model = *target.model;
  if (model.guard != nullptr) model.synced_in_guard = true;
  if (!target.closes) return;
  const TargetHeader mine = header_of(target);
  const TargetTotals totals{
      .held = mine.held, .means = mine.means, .items = mine.items, .scaled = mine.scaled, .held_most = mine.held};
  if (!totals.empty()) {
    const double factor =
        closing_factor(totals, steps(), 1, options_.tail_policy, false) * correction_of(model, totals.by_items());
    if (factor != 1.0) {
      const at::NoGradGuard no_grad;
      std::vector<at::Tensor> gradients;
      // As the model is now: in a group of one nobody had to tell that tensors were replaced.
      for (const NamedTensor& parameter : unique_parameters(model.ref))
        if (parameter.tensor.grad().defined() && done.insert(parameter.tensor.unsafeGetTensorImpl()).second)
          gradients.push_back(without_lazy_bits(parameter.tensor.grad()));
      if (!gradients.empty()) at::_foreach_mul_(gradients, factor);
    }
  }
  close(target, totals);
}

void AcceleratorImpl::close(Target& target, const TargetTotals& totals) {
  ModelState& model = *target.model;
  if (!totals.empty()) {
    model.generation = ++training_->windows;
  } else if (totals.held > 0) {
    log(LogLevel::kWarning, site_of(group()), "backward",
        cat("no items in the window of ", model.name, " on any rank: no gradient, no step"));
    model.drop_window();
  }
  model.buffers_due = true;
  model.window.reset();
  model.divided_by = 1.0;
  model.more_open = false;
  if (model.guard != nullptr) model.closed_in_guard = true;
}

// Losses were divided by n as it was when the window began, or by what was expected of its items.
double AcceleratorImpl::correction_of(const ModelState& model, bool by_items) const {
  if (by_items) return model.window.by_items() ? model.divided_by : 1.0;
  return model.window.open() ? model.divided_by / static_cast<double>(steps()) : 1.0;
}

TargetHeader AcceleratorImpl::header_of(const Target& target) const {
  const ModelState& model = *target.model;
  TargetHeader header{.held = model.window.held(), .items = model.window.items()};
  header.means = model.window.by_items() ? 0 : header.held;
  header.scaled = target.closes && correction_of(model, model.window.by_items()) != 1.0 ? 1 : 0;
  header.unplaced =
      std::all_of(model.units.begin(), model.units.end(), [](const auto& unit) { return unit->placed(); }) ? 0 : 1;
  header.signature =
      (model.index * 2 + (target.closes ? 1 : 0)) * 1099511628211ULL + static_cast<std::uint64_t>(steps());
  for (const auto& unit : model.units) header.signature = header.signature * 1099511628211ULL + unit->signature();
  return header;
}

std::string AcceleratorImpl::description_of(const std::vector<Target>& targets) const {
  std::string text;
  for (const Target& target : targets)
    text += cat(target.model->name, target.closes ? " closing its window" : " inside its window",
                ", gradient_accumulation_steps ", steps(), "\n");
  for (const Target& target : targets)
    for (const auto& unit : target.model->units) text += unit->description();
  return text;
}

void AcceleratorImpl::exchange_orders(const std::vector<Target>& targets) {
  for (const Target& target : targets)
    for (const auto& unit : target.model->units) {
      if (!unit->wants_reorder()) continue;
      const std::vector<std::int64_t> mine = unit->order_reached();
      at::Tensor order = at::empty({static_cast<std::int64_t>(mine.size())}, c10::TensorOptions(c10::kLong));
      std::copy(mine.begin(), mine.end(), order.data_ptr<std::int64_t>());
      order = order.to(control_device(group()));
      broadcast(order, 0, Purpose::kControl, group(), where_);
      order = order.to(c10::kCPU);
      unit->reorder({order.data_ptr<std::int64_t>(), order.data_ptr<std::int64_t>() + order.numel()});
    }
}

std::vector<TargetHeader> AcceleratorImpl::headers_of(const std::vector<Target>& targets) const {
  std::vector<TargetHeader> headers;
  for (const Target& target : targets) {
    for (const auto& unit : target.model->units) unit->follow_requires_grad();
    headers.push_back(header_of(target));
  }
  return headers;
}

std::vector<TargetTotals> AcceleratorImpl::agree(const std::vector<Target>& targets, const char* call) {
  const std::vector<TargetHeader> headers = headers_of(targets);
  const auto describe = [&] { return description_of(targets); };
  const HeaderCall ask{group(), call, describe, where_};
  const RoundOpening opening =
      open_round(join_ ? Stance::kJoining : Stance::kPlain, models_of(targets, call), headers, ask);
  note_round(opening);
  std::vector<TargetTotals> totals = exchange_totals(opening, headers, ask);
  settle(targets, totals, call);
  return totals;
}

void AcceleratorImpl::settle(const std::vector<Target>& targets, const std::vector<TargetTotals>& totals,
                             const char* call) {
  for (std::size_t at = 0; at < targets.size(); ++at)
    if (totals[at].by_items() && totals[at].means > 0)
      usage_error(call, cat("expected all losses of one window to be means, or all to be sums with .items, found ",
                            totals[at].means, " means among the ", totals[at].held, " micro-batches of ",
                            targets[at].model->name, " on all ranks; pass .items on every rank or on none"));
  exchange_orders(targets);
  // Laying out is each rank's own affair, placing is collective: where one wants it, all do it.
  std::set<const SyncUnit*> placed;  // models may share units
  for (std::size_t at = 0; at < targets.size(); ++at)
    for (const auto& unit : targets[at].model->units)
      if ((totals[at].unplaced > 0 || !unit->placed()) && placed.insert(unit.get()).second) unit->place(group());
}

// A model that shares these parameters stands in the middle of a window: what was reached in it is still to be reduced.
bool AcceleratorImpl::used_elsewhere(const SyncUnit& unit, const std::vector<Target>& targets) const {
  return std::any_of(training_->models.begin(), training_->models.end(), [&](const auto& model) {
    const auto shares = [&unit](const auto& each) { return each.get() == &unit; };
    const auto here = [&model](const Target& target) { return target.model == model.get(); };
    return model->window.open() && std::any_of(model->units.begin(), model->units.end(), shares) &&
           std::none_of(targets.begin(), targets.end(), here);
  });
}

std::vector<RoundUnit> AcceleratorImpl::units_of(const std::vector<Target>& targets,
                                                 const std::vector<TargetTotals>& totals) const {
  std::vector<RoundUnit> units;
  for (std::size_t at = 0; at < targets.size(); ++at) {
    const ModelState& model = *targets[at].model;
    const double factor = targets[at].closes ? closing_factor(totals[at], steps(), group().size(), options_.tail_policy,
                                                              join_ && join_->options.divide_by_initial_world_size)
                                             : 1.0;
    for (const auto& unit : model.units) {
      if (std::any_of(units.begin(), units.end(), [&](const RoundUnit& each) { return each.unit == unit; })) continue;
      RoundUnit each{.unit = unit, .closes = targets[at].closes && !used_elsewhere(*unit, targets)};
      if (totals[at].scaled > 0)  // ranks divided by different counts: put right before the sum
        each.local_factor = factor * correction_of(model, totals[at].by_items());
      else
        each.factor = factor;
      units.push_back(std::move(each));
    }
  }
  return units;
}

void AcceleratorImpl::drop(std::vector<Target>& targets) {
  for (Target& target : targets) {
    target.model->drop_window();
    target.model->buffers_due = true;
    if (target.model->guard != nullptr) target.model->synced_in_guard = target.model->closed_in_guard = true;
  }
}

void AcceleratorImpl::reduce(const std::vector<Target>& targets, const std::vector<TargetTotals>& totals,
                             const char* call, const Run& run) {
  Round round(units_of(targets, totals), group(), where_);
  const auto abandon = [&](const std::string& reason) { (void)round.abandon(reason.substr(0, reason.find('\n'))); };
  try {
    if (run) run();
    round.collect();
  } catch (const CommError&) {
    throw;  // a peer is gone: there is nobody to send the rest to
  } catch (const std::exception& error) {
    abandon(error.what());
    throw;
  } catch (...) {
    abandon("an exception that is no std::exception");
    throw;
  }
  if (const auto failed = round.finish())
    throw AbandonedError(
        message(site_of(group()), call,
                cat("expected every rank to finish its backward, found that one threw (", *failed,
                    "); the window was dropped on all ranks and the group is good: catch this on every rank and go on "
                    "with the next window, or end the job")));
}

void AcceleratorImpl::sync(const ModelRef& ref) {
  ModelState& model = state_of(ref, "sync");
  const std::pair before(model.window, model.held_in_guard);
  for (const auto& unit : model.units) {
    unit->follow_requires_grad();
    unit->use_what_is_there();
  }
  // Gradients that no backward of ours divided are averaged over ranks as they are: as a full window.
  if (model.window.held() == 0) {
    model.divided_by = static_cast<double>(steps());
    for (std::int64_t step = 0; step < steps(); ++step) model.window.hold();
  }
  std::vector<Target> targets{
      {.model = &model, .syncs = true, .closes = true, .counts = false, .holds_its_own = false}};
  if (model.guard != nullptr) model.held_in_guard = true;
  try {
    micro_batch(targets, std::nullopt, "sync", {});
  } catch (const UsageError&) {
    std::tie(model.window, model.held_in_guard) = before;
    throw;
  }
}

void AcceleratorImpl::finish_window(const ModelRef& ref) {
  ModelState& model = state_of(ref, "finish_window");
  if (model.guard != nullptr)
    usage_error("finish_window",
                cat("expected no open guard on ", model.name, ", found one; leave the scope of the micro-batch first"));
  std::vector<Target> targets{
      {.model = &model, .syncs = true, .closes = true, .counts = false, .holds_its_own = false}};
  micro_batch(targets, std::nullopt, "finish_window", {});
}

void AcceleratorImpl::discard_window(const ModelRef& ref) {
  ModelState& model = state_of(ref, "discard_window");
  model.drop_window();
  model.held_in_guard = false;
  model.generation = 0;  // a reduced gradient that was thrown away is not stepped with
}

void AcceleratorImpl::zero_grad(const ModelRef& ref) {
  ModelState& model = state_of(ref, "zero_grad");
  if (!model.window.open()) model.drop_window();
}

}  // namespace accel::detail
