#pragma once

#include "optim/training_state.hpp"

#include <accel/optimizer.hpp>

#include <functional>
#include <memory>
#include <vector>

namespace accel::detail {

/// The optimizer beneath an accel::Optimizer and when it may act.
class OptimizerState {
 public:
  OptimizerState(std::shared_ptr<torch::optim::Optimizer> optimizer, std::shared_ptr<TrainingState> training);

  Stepped step();
  at::Tensor step(const std::function<at::Tensor()>& closure);
  void zero_grad();
  void add_callback(std::function<void()> callback) { callbacks_.push_back(std::move(callback)); }

  /// The first parameter is the one it was prepared with: at its address is not another optimizer by now.
  [[nodiscard]] bool has_same_parameters() const;
  [[nodiscard]] torch::optim::Optimizer& optimizer() const { return *optimizer_; }
  [[nodiscard]] std::int64_t steps() const { return steps_; }
  /// It did not step with the last window of this model, whose gradients are still there.
  [[nodiscard]] bool left_gradients(const ModelState& model);

  /// The state as another rank's optimizer can take it over.
  [[nodiscard]] std::string state_bytes() const;
  /// Stands where the optimizer of another rank does, whose steps this one did not take. No callback is called.
  void take_over(std::int64_t steps, const std::string& bytes);

  [[nodiscard]] bool overflowed() const { return false; }

 private:
  class Evaluation;

  void find_owners();
  [[nodiscard]] std::uint64_t generation() const;
  [[nodiscard]] bool due() const;
  [[nodiscard]] bool may_step_plainly() const;
  void refuse_unreduced() const;
  void refuse_plain_backward(const ModelState& owner) const;
  [[nodiscard]] bool has_plain_gradient(const ModelState& owner) const;
  /// What was stepped with may still be there: it is no new gradient.
  void remember_gradients();
  [[nodiscard]] bool gradients_are_new() const;
  [[nodiscard]] const at::Tensor* any_gradient() const;
  void perform();
  void clear();

  std::shared_ptr<torch::optim::Optimizer> optimizer_;
  std::shared_ptr<TrainingState> training_;
  std::vector<std::function<void()>> callbacks_;

  std::vector<ModelState*> owners_;
  std::vector<SyncUnit*> units_;
  std::vector<at::Tensor> ownerless_;  ///< parameters in no prepared model
  at::Tensor first_parameter_;         ///< as it was prepared
  std::size_t parameters_seen_ = 0;
  std::uint64_t version_seen_ = ~std::uint64_t{0};

  // Weak: the address of a gradient that is gone is not given to another one while it is remembered.
  struct SteppedWith {
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> gradient;
    std::uint32_t version = 0;
  };
  std::vector<SteppedWith> stepped_with_;

  std::uint64_t generation_stepped_ = 0;
  std::int64_t steps_ = 0;
  bool stepped_since_clear_ = false;
};

}  // namespace accel::detail
