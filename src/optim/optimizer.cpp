#include <accel/optimizer.hpp>

#include "core/message.hpp"
#include "optim/optimizer_state.hpp"
#include "runtime/session.hpp"

#include <accel/error.hpp>

#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

#include <utility>

namespace accel {

Optimizer::Optimizer() = default;
Optimizer::Optimizer(std::shared_ptr<detail::OptimizerState> state) : state_(std::move(state)) {}

detail::OptimizerState& Optimizer::checked(const char* call) const {
  if (!state_)
    throw UsageError(detail::message(detail::job_site(), detail::cat("optimizer.", call),
                                     "expected a prepared optimizer, found an empty one; assign it the result of "
                                     "accelerator.prepare(optimizer)"));
  return *state_;
}

Stepped Optimizer::step() {
  return checked("step").step();
}
at::Tensor Optimizer::step(const std::function<at::Tensor()>& closure) {
  return checked("step").step(closure);
}
void Optimizer::zero_grad() {
  checked("zero_grad").zero_grad();
}

std::vector<torch::optim::OptimizerParamGroup>& Optimizer::param_groups() const {
  return checked("param_groups").optimizer().param_groups();
}
torch::optim::OptimizerOptions& Optimizer::defaults() const {
  return checked("defaults").optimizer().defaults();
}
torch::optim::Optimizer& Optimizer::torch() const {
  return checked("torch").optimizer();
}
bool Optimizer::overflowed() const {
  return checked("overflowed").overflowed();
}
std::int64_t Optimizer::steps() const {
  return checked("steps").steps();
}

torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive, const Optimizer& optimizer) {
  optimizer.torch().save(archive);
  return archive;
}

torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive, Optimizer& optimizer) {
  optimizer.torch().load(archive);
  return archive;
}

}  // namespace accel
