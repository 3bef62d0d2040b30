#include "runtime/session.hpp"

#include "core/env.hpp"

#include <accel/error.hpp>

namespace accel::detail {
namespace {

// As GroupOptions::timeout: a rank may well work this long on its own before it comes to its end.
constexpr std::chrono::milliseconds kDefaultExitTimeout = std::chrono::minutes(30);

std::atomic<std::int64_t> packed_site{1};

}  // namespace

Session& Session::get() {
  // Never destroyed: its end is the exit handler or the host's MPI_Finalize, not the order of static destructors.
  static Session* const session = new Session();
  return *session;
}

OnFailure Session::failure_policy(OnFailure asked) const {
  if (asked != OnFailure::kDefault) return asked;
  return process_.owns_mpi ? OnFailure::kAbortJob : OnFailure::kThrow;
}

void Session::set_exit_timeout(std::chrono::milliseconds timeout) {
  std::int64_t longest = asked_exit_ms_.load();
  while (longest < timeout.count() && !asked_exit_ms_.compare_exchange_weak(longest, timeout.count())) {
  }
}

std::chrono::milliseconds Session::exit_timeout() const {
  if (ordered_exit_ms_ > 0) return std::chrono::milliseconds(ordered_exit_ms_);
  const std::int64_t asked = asked_exit_ms_.load();
  return asked > 0 ? std::chrono::milliseconds(asked) : kDefaultExitTimeout;
}

int Session::at_close(std::function<void()> close) {
  return close_list_.add(std::move(close));
}

void Session::forget(int handle) noexcept {
  close_list_.forget(handle);
}

void Session::close() noexcept {
  if (!usable()) return;
  close_list_.run();
  usable_.store(false, std::memory_order_release);
  process_.has_mpi = false;
}

void job_usage_error(std::string_view call, std::string_view text) {
  throw UsageError(message(job_site(), call, text));
}

Site job_site() noexcept {
  const std::int64_t packed = packed_site.load(std::memory_order_relaxed);
  return {static_cast<int>(packed >> 32), static_cast<int>(packed & 0x7fffffff)};
}

void set_job_site(Site site) noexcept {
  packed_site.store(static_cast<std::int64_t>(site.rank) << 32 | site.size, std::memory_order_relaxed);
}

}  // namespace accel::detail
