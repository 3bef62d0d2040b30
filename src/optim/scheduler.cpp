#include <accel/scheduler.hpp>

#include "core/message.hpp"
#include "optim/scheduler_state.hpp"
#include "runtime/session.hpp"

#include <accel/error.hpp>

namespace accel {

Scheduler::Scheduler() = default;
Scheduler::Scheduler(std::shared_ptr<detail::SchedulerState> state) : state_(std::move(state)) {}

void Scheduler::step() {
  if (!state_)
    throw UsageError(detail::message(detail::job_site(), "scheduler.step",
                                     "expected a prepared scheduler, found an empty one; assign it the result of "
                                     "accelerator.prepare(scheduler)"));
  state_->step();
}

std::int64_t Scheduler::steps() const {
  return state_ ? state_->steps() : 0;
}

}  // namespace accel
