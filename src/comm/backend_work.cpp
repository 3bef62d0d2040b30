#include "comm/backend_work.hpp"

#include <ATen/core/jit_type.h>

#include <utility>

namespace accel::detail {
namespace {

class BackendWork final : public c10d::Work {
 public:
  BackendWork(Channel::Pending pending, int rank, c10d::OpType type, std::vector<at::Tensor> results)
      : c10d::Work(rank, type), pending_(std::move(pending)), results_(std::move(results)) {}

  bool isCompleted() override { return !pending_ || pending_->is_completed(); }
  bool isSuccess() const override { return (!pending_ || pending_->is_completed()) && !exception(); }

  std::exception_ptr exception() const override {
    if (!pending_ || !pending_->is_completed()) return nullptr;
    std::exception_ptr found;
    pending_->on_done([&found](std::exception_ptr error) { found = std::move(error); });
    return found;
  }

  bool wait(std::chrono::milliseconds timeout) override {
    if (pending_) pending_->wait(timeout);
    return true;
  }

  void synchronize() override { wait(kNoTimeout); }
  std::vector<at::Tensor> result() override { return results_; }

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    const std::lock_guard lock(mutex_);
    if (future_) return future_;
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    if (!pending_) {
      future_->markCompleted(c10::IValue(results_));
      return future_;
    }
    pending_->on_done([future = future_, results = results_](std::exception_ptr error) {
      if (error)
        future->setError(std::move(error));
      else
        future->markCompleted(c10::IValue(results));
    });
    return future_;
  }

 private:
  const Channel::Pending pending_;
  const std::vector<at::Tensor> results_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace

c10::intrusive_ptr<c10d::Work> backend_work(Channel::Pending pending, int rank, c10d::OpType type,
                                            std::vector<at::Tensor> results) {
  return c10::make_intrusive<BackendWork>(std::move(pending), rank, type, std::move(results));
}

}  // namespace accel::detail
