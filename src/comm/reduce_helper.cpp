#include "comm/reduce_helper.hpp"

#include <pthread.h>
#include <system_error>
#include <thread>

namespace accel::detail {

ReduceHelper::~ReduceHelper() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
    state_->tasks.clear();
  }
  state_->wake.notify_one();
}

void ReduceHelper::push(std::shared_ptr<HelperTask> task, std::uint64_t generation) {
  {
    const std::lock_guard lock(state_->mutex);
    if (!std::exchange(started_, true)) {
      try {
        // Never joined: a task may wait for a rank that does not come.
        std::thread thread([state = state_] { work(state); });
        pthread_setname_np(thread.native_handle(), "accel-reduce");
        thread.detach();
      } catch (const std::system_error&) {
        state_->stop = true;  // no thread to be had: all is done at the end of the backward
      }
    }
    if (state_->stop) return;
    state_->tasks.emplace_back(std::move(task), generation);
  }
  state_->wake.notify_one();
}

void ReduceHelper::work(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  for (;;) {
    state->wake.wait(lock, [&] { return state->stop || !state->tasks.empty(); });
    if (state->stop) return;
    auto [task, generation] = std::move(state->tasks.front());
    state->tasks.pop_front();
    lock.unlock();
    task->run(generation);
    task.reset();
    lock.lock();
  }
}

}  // namespace accel::detail
