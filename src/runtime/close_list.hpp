#pragma once

#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace accel::detail {

/// What has to be undone before MPI ends. Thread-safe; entries may be added and forgotten while it runs.
class CloseList {
 public:
  int add(std::function<void()> close);
  void forget(int handle) noexcept;

  /// Runs and drops all entries, the latest first. An entry that throws is reported and does not stop the others.
  void run() noexcept;

 private:
  std::mutex mutex_;
  int next_handle_ = 0;
  std::vector<std::pair<int, std::function<void()>>> entries_;
};

}  // namespace accel::detail
