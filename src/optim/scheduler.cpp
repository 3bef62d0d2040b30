#include <accel/scheduler.hpp>

#include "core/message.hpp"
#include "optim/scheduler_state.hpp"
#include "runtime/session.hpp"

#include <accel/error.hpp>

namespace accel {

Scheduler::Scheduler() = default;
Scheduler::Scheduler(std::shared_ptr<detail::SchedulerState> state) : state_(std::move(state)) {}

detail::SchedulerState& Scheduler::checked(const char* call) const {
  if (!state_)
    throw UsageError(detail::message(detail::job_site(), detail::cat("scheduler.", call),
                                     "expected a prepared scheduler, found an empty one; assign it the result of "
                                     "accelerator.prepare(scheduler)"));
  return *state_;
}

void Scheduler::step() {
  checked("step").step();
}

std::int64_t Scheduler::steps() const {
  return checked("steps").steps();
}

}  // namespace accel
