#include "runtime/close_list.hpp"

#include "core/log.hpp"
#include "runtime/session.hpp"

#include <algorithm>
#include <exception>

namespace accel::detail {

int CloseList::add(std::function<void()> close) {
  const std::lock_guard lock(mutex_);
  const int handle = next_handle_++;
  entries_.emplace_back(handle, std::move(close));
  return handle;
}

void CloseList::forget(int handle) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [handle](const auto& entry) { return entry.first == handle; });
}

void CloseList::run() noexcept {
  for (;;) {
    std::function<void()> close;
    {
      // Not held during the call: closing one group may forget others.
      const std::lock_guard lock(mutex_);
      if (entries_.empty()) return;
      close = std::move(entries_.back().second);
      entries_.pop_back();
    }
    try {
      close();
    } catch (const std::exception& error) {
      log(LogLevel::kError, job_site(), "close", error.what());
    } catch (...) {
      log(LogLevel::kError, job_site(), "close", "an exception of an unknown type");
    }
  }
}

}  // namespace accel::detail
