#include "comm/followed.hpp"

#include <mutex>
#include <utility>

namespace accel::detail {
namespace {

class Followed final : public WorkImpl {
 public:
  Followed(Channel::Pending first, std::function<void()> last) : state_(std::make_shared<State>()) {
    state_->first = std::move(first);
    state_->last = std::move(last);
  }

  void wait(std::chrono::milliseconds timeout) override {
    state_->first->wait(timeout);
    state_->run_last();
  }

  bool is_completed() override {
    if (!state_->first->is_completed()) return false;
    state_->first->on_done([state = state_](const std::exception_ptr& error) {
      if (!error) state->run_last();
    });
    return true;
  }

  void on_done(std::function<void(std::exception_ptr)> done) override {
    state_->first->on_done([state = state_, done = std::move(done)](const std::exception_ptr& error) {
      if (!error) state->run_last();
      done(error);
    });
  }

 private:
  struct State {
    Channel::Pending first;
    std::function<void()> last;
    std::once_flag ran;

    void run_last() { std::call_once(ran, last); }
  };
  const std::shared_ptr<State> state_;
};

}  // namespace

Channel::Pending followed_by(Channel::Pending pending, std::function<void()> last) {
  if (!pending) {
    last();
    return nullptr;
  }
  return std::make_shared<Followed>(std::move(pending), std::move(last));
}

}  // namespace accel::detail
