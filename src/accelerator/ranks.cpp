#include "accelerator/accelerator_impl.hpp"
#include "comm/ops.hpp"
#include "core/log.hpp"
#include "core/message.hpp"

#include <accel/error.hpp>
#include <accel/source_location.hpp>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <exception>
#include <utility>

namespace accel {
namespace {

double agreed(double value, ReduceOp op, const Group& group, const SourceLocation& where) {
  if (group.size() == 1) return value;
  at::Tensor number = at::full({1}, value, c10::TensorOptions(c10::kDouble).device(detail::control_device(group)));
  detail::all_reduce(number, {.op = op, .factor = 1.0, .purpose = Purpose::kControl}, group, where);
  return number.item<double>();
}

constexpr int kMainProcessFirstTag = 7301;  // apart from tags that programs use

}  // namespace

void detail::AcceleratorImpl::keep(Work work, const at::Tensor& tensor) {
  std::erase_if(kept_, [](const auto& each) { return each.first.is_completed(); });
  kept_.emplace_back(std::move(work), tensor);
}

std::optional<detail::BatchRows> detail::AcceleratorImpl::rows_at_hand() {
  if (const std::string uneven = loaders_->note_gathering(); !uneven.empty())
    log(LogLevel::kWarning, site_of(group()), "gather_for_metrics", uneven);
  return loaders_->rows();
}

bool Accelerator::any(bool value, SourceLocation where) {
  return agreed(value ? 1.0 : 0.0, ReduceOp::kMax, user_group("any"), where) > 0.0;
}
bool Accelerator::all(bool value, SourceLocation where) {
  return agreed(value ? 1.0 : 0.0, ReduceOp::kMin, user_group("all"), where) > 0.0;
}
double Accelerator::mean(double value, SourceLocation where) {
  return agreed(value, ReduceOp::kAvg, user_group("mean"), where);
}

at::Tensor Accelerator::mean(const at::Tensor& value, SourceLocation where) {
  if (!value.defined() || !at::isFloatingType(value.scalar_type()))
    shared()->usage_error("mean", detail::cat("expected a floating tensor, found ",
                                              value.defined() ? c10::toString(value.scalar_type()) : "an undefined one",
                                              "; convert it: value.to(torch::kFloat)"));
  const at::NoGradGuard no_grad;
  at::Tensor result = value.detach().clone();
  detail::all_reduce(result, {.op = ReduceOp::kAvg, .factor = 1.0, .purpose = Purpose::kUser}, user_group("mean"),
                     where);
  return result;
}

void Accelerator::wait_for_everyone(SourceLocation where) {
  barrier(user_group("wait_for_everyone"), where);
}

void Accelerator::set_trigger() {
  shared()->set_trigger();
}
bool Accelerator::check_trigger(SourceLocation where) {
  const Group& group = user_group("check_trigger");
  return agreed(shared()->take_trigger() ? 1.0 : 0.0, ReduceOp::kMax, group, where) > 0.0;
}

MainProcessFirst Accelerator::main_process_first() {
  shared()->refuse_in_join("main_process_first");
  return MainProcessFirst(shared());
}

MainProcessFirst::MainProcessFirst(std::shared_ptr<detail::AcceleratorImpl> accelerator)
    : accelerator_(std::move(accelerator)) {
  const Group& group = accelerator_->group();
  if (group.size() == 1) return;
  if (detail::control_device(group) != c10::kCPU)
    accelerator_->usage_error("main_process_first",
                              "expected a group with a backend for CPU tensors, found one without; "
                              "use on_main_process and wait_for_everyone");
  if (group.rank() == 0) return;
  at::Tensor go = at::zeros({1}, c10::TensorOptions(c10::kByte));
  recv(go, 0, group, kMainProcessFirstTag);
}

// One byte that MPI takes over at once: nothing here can block, so the others go on even if this scope is unwinding.
MainProcessFirst::~MainProcessFirst() {
  const Group& group = accelerator_->group();
  if (group.size() == 1 || group.rank() != 0) return;
  try {
    for (int rank = 1; rank < group.size(); ++rank) {
      at::Tensor go = at::zeros({1}, c10::TensorOptions(c10::kByte));
      accelerator_->keep(send_async(go, rank, group, kMainProcessFirstTag), go);
    }
  } catch (const std::exception& error) {
    detail::log(detail::LogLevel::kError, detail::site_of(group), "main_process_first", error.what());
  }
}

}  // namespace accel
