#pragma once

#include "optim/optimizer_state.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace accel::detail {

/// The scheduler beneath an accel::Scheduler and the optimizers whose steps it follows.
class SchedulerState {
 public:
  /// @param repeats  scheduler steps for one optimizer step
  SchedulerState(std::function<void()> step, std::vector<std::shared_ptr<OptimizerState>> optimizers,
                 std::int64_t repeats)
      : step_(std::move(step)), optimizers_(std::move(optimizers)), repeats_(repeats), seen_(performed()) {}

  void step() {
    const std::int64_t now = performed();
    if (now == seen_) return;
    seen_ = now;
    for (std::int64_t repeat = 0; repeat < repeats_; ++repeat) step_();
    steps_ += repeats_;
  }
  [[nodiscard]] std::int64_t steps() const { return steps_; }

  /// Takes the steps that another rank has taken already.
  void catch_up(std::int64_t steps) {
    for (; steps_ < steps; ++steps_) step_();
  }
  /// Steps of the optimizers that no step() has followed yet.
  [[nodiscard]] std::int64_t pending() const { return performed() - seen_; }
  void set_pending(std::int64_t steps) { seen_ = performed() - steps; }

 private:
  [[nodiscard]] std::int64_t performed() const {
    std::int64_t sum = 0;
    for (const auto& optimizer : optimizers_) sum += optimizer->steps();
    return sum;
  }

  std::function<void()> step_;
  std::vector<std::shared_ptr<OptimizerState>> optimizers_;
  std::int64_t repeats_;
  std::int64_t seen_;
  std::int64_t steps_ = 0;
};

}  // namespace accel::detail
