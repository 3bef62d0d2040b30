#include <accel/accelerator.hpp>

#include "accelerator/accelerator_impl.hpp"
#include "comm/ops.hpp"
#include "core/message.hpp"
#include "runtime/session.hpp"

#include <accel/error.hpp>

#include <algorithm>
#include <utility>

namespace accel {
namespace detail {
namespace {

void check_options(const AcceleratorOptions& options) {
  const auto positive = [](const char* field, std::int64_t value) {
    if (value < 1)
      throw UsageError(message(job_site(), "Accelerator",
                               cat("expected ", field, " >= 1, found ", value, "; give a positive number")));
  };
  positive("gradient_accumulation_steps", options.gradient_accumulation_steps);
  positive("bucket_bytes", options.bucket_bytes);
  positive("first_bucket_bytes", options.first_bucket_bytes);
  positive("comm_timeout (milliseconds)", options.comm_timeout.count());
}

/// What ranks must agree on, or they would send different messages or drift apart; one line an option.
std::string text_of(const AcceleratorOptions& options, const c10::Device& device) {
  return cat("gradient_accumulation_steps ", options.gradient_accumulation_steps, "\ntail_policy ",
             static_cast<int>(options.tail_policy), "\nsync_with_dataloader ", options.sync_with_dataloader,
             "\nscheduler_unit ", static_cast<int>(options.scheduler_unit), "\ndevice ",
             c10::DeviceTypeName(device.type()), "\nbroadcast_buffers ", options.broadcast_buffers,
             "\nsync_each_batch ", options.sync_each_batch, "\nfirst_bucket_bytes ", options.first_bucket_bytes,
             "\nbucket_bytes ", options.bucket_bytes, "\n");
}

/// @param problem  why this rank refuses its options; empty if it does not
void agree_on_options(const std::string& mine, const std::string& problem, const Group& group) {
  const SourceLocation here;
  const auto problems = all_gather_text(problem, Purpose::kControl, group, here);
  const auto texts = all_gather_text(mine, Purpose::kControl, group, here);
  if (!problem.empty()) throw UsageError(problem);
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    if (!problems[rank].empty())
      throw UsageError(message(site_of(group), "Accelerator", cat("rank ", rank, " was refused: ", problems[rank])));
    if (texts[rank] == texts[0]) continue;
    const auto [first, other] = first_difference(texts[0], texts[rank]);
    throw UsageError(message(site_of(group), "Accelerator",
                             cat("expected the same options on all ranks, found '", first, "' on rank 0 and '", other,
                                 "' on rank ", rank, "; give every rank the same AcceleratorOptions")));
  }
}

}  // namespace

// A rank that refuses its options does so together with the others, who would wait for it.
AcceleratorImpl::AcceleratorImpl(const AcceleratorOptions& options) : options_(options) {
  // Not value_or: making the world is collective over all ranks of the job, and those outside the group may not come.
  const Group base = options.group ? *options.group : world();
  std::string problem;
  try {
    check_options(options);
    device_ = device_for(base.process(), options.device);
  } catch (const UsageError& error) {
    if (base.size() == 1) throw;
    problem = error.what();
  }
  // A year is for ever; more overflows in nanoseconds.
  const auto timeout = std::clamp<std::chrono::milliseconds>(options.comm_timeout, std::chrono::milliseconds(1),
                                                             std::chrono::hours(24 * 365));
  training_ = std::make_shared<TrainingState>(base.duplicate(
      {.timeout = problem.empty() ? timeout : base.options().timeout, .on_failure = options.on_failure}));
  if (base.size() > 1) agree_on_options(text_of(options, device_), problem, group());
  training_->steps = options.gradient_accumulation_steps;
}

void AcceleratorImpl::set_steps(std::int64_t steps) {
  if (steps < 1)
    usage_error("set_gradient_accumulation_steps",
                cat("expected steps >= 1, found ", steps, "; give a positive number"));
  training_->steps = steps;
}

ModelState& AcceleratorImpl::state_of(const ModelRef& model, const char* call) const {
  ModelState* state = training_->find(model.key());
  if (state == nullptr)
    usage_error(call, "expected a prepared model, found one that was not; call accelerator.prepare(model) first");
  return *state;
}

void AcceleratorImpl::usage_error(const char* call, const std::string& text) const {
  throw UsageError(message(site_of(group()), call, text));
}

}  // namespace detail

Accelerator::Accelerator(const AcceleratorOptions& options)
    : TreeMethods(std::make_shared<detail::AcceleratorImpl>(options)) {}
Accelerator::~Accelerator() = default;
Accelerator::Accelerator(Accelerator&&) noexcept = default;
Accelerator& Accelerator::operator=(Accelerator&&) noexcept = default;

MicroBatch Accelerator::accumulate(const ModelRef& model, const MicroBatchOptions& options) {
  return {shared(), {model}, options};
}
MicroBatch Accelerator::accumulate(const ModelRef& first, const ModelRef& second, const MicroBatchOptions& options) {
  return {shared(), {first, second}, options};
}
MicroBatch Accelerator::accumulate(const ModelRef& first, const ModelRef& second, const ModelRef& third,
                                   const MicroBatchOptions& options) {
  return {shared(), {first, second, third}, options};
}
MicroBatch Accelerator::accumulate(const std::vector<ModelRef>& models, const MicroBatchOptions& options) {
  return {shared(), models, options};
}
NoSync Accelerator::no_sync(const ModelRef& model) {
  return {shared(), model};
}

void Accelerator::backward(const at::Tensor& loss, const BackwardOptions& options, SourceLocation where) {
  shared()->at(where).backward({loss}, options);
}
void Accelerator::backward(const std::vector<at::Tensor>& losses, const BackwardOptions& options,
                           SourceLocation where) {
  shared()->at(where).backward(losses, options);
}
void Accelerator::sync(const ModelRef& model, SourceLocation where) {
  shared()->at(where).sync(model);
}
void Accelerator::finish_window(const ModelRef& model, SourceLocation where) {
  shared()->at(where).finish_window(model);
}
void Accelerator::discard_window(const ModelRef& model) {
  shared()->discard_window(model);
}
std::int64_t Accelerator::pending_micro_batches(const ModelRef& model) const {
  return shared()->state_of(model, "pending_micro_batches").window.position();
}
void Accelerator::refresh(const ModelRef& model) {
  shared()->refresh(model);
}
void Accelerator::zero_grad(const ModelRef& model) {
  shared()->zero_grad(model);
}
bool Accelerator::sync_gradients() const {
  return shared()->sync_gradients();
}
std::int64_t Accelerator::gradient_accumulation_steps() const {
  return shared()->steps();
}
void Accelerator::set_gradient_accumulation_steps(std::int64_t steps) {
  shared()->set_steps(steps);
}

void Accelerator::on_step(const Optimizer& optimizer, std::function<void()> callback) {
  if (!callback)
    shared()->usage_error("on_step", "expected a callback, found an empty function; give something to call");
  if (optimizer.empty())
    shared()->usage_error("on_step", "expected a prepared optimizer, found an empty one; prepare it first");
  optimizer.impl()->add_callback(std::move(callback));
}

const Group& Accelerator::group() const {
  return shared()->group();
}
c10::Device Accelerator::device() const {
  return shared()->device();
}
CommStats Accelerator::comm_stats() const {
  return shared()->group().comm_stats();
}
void Accelerator::free_memory() {
  shared()->free_memory();
}

}  // namespace accel
