#pragma once

#include <accel/export.hpp>

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

namespace accel {

namespace detail {
class SchedulerState;
}

/// How often a scheduler steps for one performed optimizer step.
enum class SchedulerUnit {
  kPerOptimizerStep,  ///< once
  kPerRank,           ///< once a rank, as Python's Accelerate does
};

/// Anything with `step()`: torch's LRScheduler classes and a program's own.
template <class S>
concept Schedule = requires(S& schedule) {
  schedule.step();
};

/// A prepared scheduler: steps only when the optimizer it is bound to has. A handle: copies refer to the same
/// scheduler.
class ACCEL_API Scheduler {
 public:
  Scheduler();
  explicit Scheduler(std::shared_ptr<detail::SchedulerState> state);

  /// Steps if its optimizer performed a step since the last call; else does nothing. Local.
  /// @throws UsageError  an empty one.
  void step();

  /// Steps performed since it was prepared.
  [[nodiscard]] std::int64_t steps() const;

  [[nodiscard]] bool empty() const { return state_ == nullptr; }
  [[nodiscard]] const std::shared_ptr<detail::SchedulerState>& impl() const { return state_; }

 private:
  [[nodiscard]] detail::SchedulerState& checked(const char* call) const;

  std::shared_ptr<detail::SchedulerState> state_;
};

}  // namespace accel
