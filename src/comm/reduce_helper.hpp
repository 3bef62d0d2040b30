#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

namespace accel::detail {

/// Work that several ranks share, of which this process may do more or less.
class HelperTask {
 public:
  virtual ~HelperTask() = default;
  virtual void run(std::uint64_t generation) noexcept = 0;
};

/// A thread that takes part in reductions while the thread that trains is in its backward. Nobody waits
/// for it, but for a piece that it has begun: the rest is done by those who want the result.
class ReduceHelper {
 public:
  ReduceHelper() : state_(std::make_shared<State>()) {}
  ~ReduceHelper();
  ReduceHelper(const ReduceHelper&) = delete;
  ReduceHelper& operator=(const ReduceHelper&) = delete;

  /// Tasks are run in this order.
  void push(std::shared_ptr<HelperTask> task, std::uint64_t generation);

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable wake;
    std::deque<std::pair<std::shared_ptr<HelperTask>, std::uint64_t>> tasks;
    bool stop = false;
  };
  static void work(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;
  bool started_ = false;
};

}  // namespace accel::detail
