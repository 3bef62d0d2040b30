#pragma once

#include <accel/export.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace torch::optim {
class Optimizer;
class OptimizerOptions;
class OptimizerParamGroup;
class OptimizerParamState;
}  // namespace torch::optim
namespace torch::serialize {
class InputArchive;
class OutputArchive;
}  // namespace torch::serialize

namespace accel {

namespace detail {
class OptimizerState;
}

/// Whether a call of step changed the parameters.
enum class Stepped { kNo, kYes };

/// A prepared optimizer: acts only when every model that owns its parameters stands at a window's end. A handle: copies
/// refer to the same optimizer. Made by `Accelerator::prepare`; default-constructed it is empty and can be assigned.
class ACCEL_API Optimizer {
 public:
  Optimizer();
  explicit Optimizer(std::shared_ptr<detail::OptimizerState> state);

  /// Steps if this optimizer's models closed a window since its last step; else does nothing. Local: what it depends on
  /// is the same on all ranks.
  /// @throws UsageError  gradients that were not reduced in this window: a plain `loss.backward()`, a forgotten guard,
  /// a
  ///                     parameter that is in no prepared model (at several ranks). Parameters are unchanged.
  Stepped step();

  /// Steps with a closure (LBFGS and its like). Each evaluation is a window of its own: gradients are cleared, the
  /// closure calls `accelerator.backward`, gradients are averaged over ranks, and the optimizer sees the loss averaged
  /// over ranks. Collective. @return that loss.
  /// @throws UsageError  gradient_accumulation_steps > 1; an empty closure, or one that called no backward or
  ///                     returned no loss.
  at::Tensor step(const std::function<at::Tensor()>& closure);

  /// Clears the gradients if this optimizer stepped, or was skipped, since they were last cleared; else does nothing.
  /// So its place in the loop does not matter.
  void zero_grad();

  [[nodiscard]] std::vector<torch::optim::OptimizerParamGroup>& param_groups() const;
  [[nodiscard]] torch::optim::OptimizerOptions& defaults() const;

  /// The optimizer beneath, whose `state()` and options it is. Its own `step` and `zero_grad` know nothing of windows.
  [[nodiscard]] torch::optim::Optimizer& torch() const;
  torch::optim::Optimizer* operator->() const { return &torch(); }

  /// The last step that was due was skipped because gradients overflowed; the same on all ranks. Always false in this
  /// version, which scales no gradients.
  [[nodiscard]] bool overflowed() const;

  /// Steps performed since it was prepared.
  [[nodiscard]] std::int64_t steps() const;

  [[nodiscard]] bool empty() const { return state_ == nullptr; }
  [[nodiscard]] const std::shared_ptr<detail::OptimizerState>& impl() const { return state_; }

 private:
  [[nodiscard]] detail::OptimizerState& checked(const char* call) const;
  std::shared_ptr<detail::OptimizerState> state_;
};

/// As for a torch optimizer: `torch::save(optimizer, path)`, `torch::load(optimizer, path)`; files are interchangeable.
ACCEL_API torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive,
                                                      const Optimizer& optimizer);
ACCEL_API torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive, Optimizer& optimizer);

}  // namespace accel
