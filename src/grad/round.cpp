#include "grad/round.hpp"

#include "comm/ops.hpp"
#include "core/message.hpp"

#include <accel/source_location.hpp>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

namespace accel::detail {
namespace {

constexpr std::uint8_t kUsed = 1;
constexpr std::uint8_t kLate = 2;  // used, and reached again after its bucket was sent

}  // namespace

Round::Round(std::vector<RoundUnit> units, const Group& group, SourceLocation where)
    : units_(std::move(units)), group_(group), where_(where) {
  for (RoundUnit& each : units_) {
    SyncUnit& unit = *each.unit;
    unit.reached_order_.clear();
    if (unit.send_after_backward_) overlap_ = false;
    for (std::size_t index = 0; index < unit.named_.size(); ++index)
      unit.parameters_[index].seen = unit.parameters_[index].late = false;
    for (std::size_t index = 0; index < unit.buckets_.size(); ++index) {
      unit.buckets_[index].pending = unit.buckets_[index].parameters.size();
      unit.buckets_[index].sent = false;
      steps_.push_back({&each, index});
    }
    unit.set_mode(SyncUnit::Mode::kRound, this);
  }
}

Round::~Round() {
  disarm();
}

void Round::disarm() noexcept {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  // Not under our lock: a hook holds its unit's gate when it asks for ours. After this no hook knows of us.
  for (const RoundUnit& each : units_) each.unit->set_mode(SyncUnit::Mode::kOutside);
}

void Round::reached(SyncUnit& unit, std::size_t index) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;  // another device's thread, after this backward failed
  SyncUnit::Parameter& parameter = unit.parameters_[index];
  if (parameter.tensor.grad().defined()) parameter.used.store(true, std::memory_order_relaxed);
  if (parameter.seen) return reached_again(unit, index);
  unit.move_into_view(parameter);
  // Until the round ends `.grad` is not the view: a further gradient must not land in a bucket under way.
  parameter.tensor.mutable_grad() = at::Tensor();
  parameter.seen = true;
  unit.reached_order_.push_back(index);
  if (--unit.buckets_[parameter.bucket].pending == 0) send_ready();
}

// Re-entrant backward (activation checkpointing) accumulates a shared parameter several times.
void Round::reached_again(SyncUnit& unit, std::size_t index) {
  SyncUnit::Parameter& parameter = unit.parameters_[index];
  unit.send_after_backward_ = true;
  if (!parameter.tensor.grad().defined()) return;
  if (unit.buckets_[parameter.bucket].sent) {
    parameter.late = true;  // `.grad` holds what came late, and gathers what may come still
    return;
  }
  const at::NoGradGuard no_grad;
  parameter.view.add_(parameter.tensor.grad().detach());
  parameter.tensor.mutable_grad() = at::Tensor();
}

void Round::send_ready() {
  if (!overlap_) return;
  // The last bucket waits for finish, which sends it from this thread without a hop to the worker.
  while (next_ + 1 < steps_.size()) {
    const Step& step = steps_[next_];
    if (step.unit->unit->buckets_[step.bucket].pending > 0) return;
    send(step, false);
    ++next_;
  }
}

void Round::send(const Step& step, bool synchronous) {
  SyncUnit::FlatBucket& bucket = step.unit->unit->buckets_[step.bucket];
  bucket.sent = true;
  if (step.unit->local_factor != 1.0) bucket.flat.mul_(step.unit->local_factor);
  const ReduceSpec spec{.op = step.unit->op, .factor = step.unit->factor, .purpose = Purpose::kGradient};
  if (synchronous) return bucket.buffer->run(spec, group_, where_);
  bucket.buffer->start(spec, group_, where_);
  under_way_.push_back(bucket.buffer.get());
}

void Round::fill_unreached() {
  for (const RoundUnit& each : units_) {
    SyncUnit& unit = *each.unit;
    for (std::size_t index = 0; index < unit.named_.size(); ++index) {
      SyncUnit::Parameter& parameter = unit.parameters_[index];
      if (parameter.seen || !parameter.view.defined()) continue;
      unit.move_into_view(parameter);
      parameter.tensor.mutable_grad() = at::Tensor();
    }
  }
}

void Round::collect() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  fill_unreached();
}

std::optional<std::string> Round::finish() {
  return complete({});
}

std::optional<std::string> Round::abandon(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    for (std::size_t step = next_; step < steps_.size(); ++step)
      steps_[step].unit->unit->buckets_[steps_[step].bucket].flat.zero_();
  }
  return complete(reason.empty() ? "unknown error" : reason);
}

std::optional<std::string> Round::complete(const std::string& failure) {
  const at::NoGradGuard no_grad;
  // In place where nothing is under way; else behind it in the queue, and all are waited for.
  const bool synchronous = under_way_.empty() && steps_.size() - next_ == 1;
  for (; next_ < steps_.size(); ++next_) send(steps_[next_], synchronous);
  for (ReduceBuffer* const buffer : under_way_) buffer->wait();
  const std::vector<std::uint8_t> agreed = agree(!failure.empty());
  if (agreed.front() != 0) {
    const auto texts = all_gather_text(failure, Purpose::kControl, group_, where_);
    for (const RoundUnit& each : units_) each.unit->drop_window();
    std::string failed;
    for (std::size_t rank = 0; rank < texts.size(); ++rank)
      if (!texts[rank].empty()) failed += cat(failed.empty() ? "" : "; ", "rank ", rank, ": ", texts[rank]);
    return failed;
  }
  reduce_late(agreed);
  hand_out(agreed);
  return std::nullopt;
}

// The first byte says whether a rank failed; then, for each trainable parameter, whether any rank reached it.
std::vector<std::uint8_t> Round::agree(bool failed) {
  std::vector<std::uint8_t> flags{static_cast<std::uint8_t>(failed)};
  for (const RoundUnit& each : units_)
    for (std::size_t index = 0; index < each.unit->named_.size(); ++index) {
      const SyncUnit::Parameter& parameter = each.unit->parameters_[index];
      if (parameter.trainable) flags.push_back(parameter.late ? kLate : parameter.used ? kUsed : std::uint8_t{0});
    }
  const auto count = static_cast<std::int64_t>(flags.size());
  at::Tensor message = at::empty({count}, c10::TensorOptions(c10::kByte));
  std::copy(flags.begin(), flags.end(), message.data_ptr<std::uint8_t>());
  at::Tensor travelling = message.to(control_device(group_));
  all_reduce(travelling, {.op = ReduceOp::kMax, .factor = 1.0, .purpose = Purpose::kControl}, group_, where_);
  message = travelling.to(c10::kCPU);
  std::copy_n(message.data_ptr<std::uint8_t>(), flags.size(), flags.begin());
  return flags;
}

void Round::reduce_late(const std::vector<std::uint8_t>& agreed) {
  std::size_t at = 1;
  for (const RoundUnit& each : units_)
    for (std::size_t index = 0; index < each.unit->named_.size(); ++index) {
      SyncUnit::Parameter& parameter = each.unit->parameters_[index];
      if (!parameter.trainable || agreed[at++] != kLate) continue;
      each.unit->send_after_backward_ = true;  // known on one rank, wanted on all: buckets then leave together
      at::Tensor rest = parameter.late ? parameter.tensor.grad().detach().contiguous().clone()
                                       : at::zeros(parameter.view.sizes(), parameter.view.options());
      if (each.local_factor != 1.0) rest.mul_(each.local_factor);
      all_reduce(rest, {.op = each.op, .factor = each.factor, .purpose = Purpose::kGradient}, group_, where_);
      parameter.view.add_(rest);
    }
}

// Zero is not "no gradient": optimizers move parameters on zeros (weight decay, momentum), so what no rank reached in
// the whole window has none, as with one rank.
void Round::hand_out(const std::vector<std::uint8_t>& agreed) {
  std::size_t at = 1;
  for (const RoundUnit& each : units_) {
    SyncUnit& unit = *each.unit;
    for (std::size_t index = 0; index < unit.named_.size(); ++index) {
      SyncUnit::Parameter& parameter = unit.parameters_[index];
      if (!parameter.trainable) continue;
      const bool used = agreed[at++] != 0;
      parameter.tensor.mutable_grad() = used ? parameter.view : at::Tensor();
      if (each.closes)
        parameter.used = false;
      else if (used)
        parameter.used = true;
    }
    unit.forget_outside();
    ++unit.rounds_;
    if (each.closes) ++unit.generation_;
  }
}

}  // namespace accel::detail
