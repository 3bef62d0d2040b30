#pragma once

#include "core/message.hpp"
#include "runtime/close_list.hpp"

#include <accel/process.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace accel::detail {

/// The one MPI session of this process: owned where accel initialises MPI, borrowed where the host program did.
/// Lives until the process ends; it has no destructor that could communicate.
class Session {
 public:
  /// Starts or finds the session. Collective at its first call where MPI is owned.
  /// @throws CommError  MPI cannot be initialised, or was finalised already.
  static Session& get();

  [[nodiscard]] const Process& process() const { return process_; }

  /// MPI may be called now: initialised and not finalised. False for ever after the host's MPI_Finalize.
  [[nodiscard]] bool usable() const { return usable_.load(std::memory_order_acquire); }

  /// The policy that kDefault means here.
  [[nodiscard]] OnFailure failure_policy(OnFailure asked) const;

  /// The longest wait for ranks that have not come to the normal exit of an owned session. The longest asked for wins;
  /// the environment variable ACCEL_EXIT_TIMEOUT (seconds) goes before all of them.
  void set_exit_timeout(std::chrono::milliseconds timeout);
  [[nodiscard]] std::chrono::milliseconds exit_timeout() const;

  /// Runs `close` before MPI is finalised (by us or by the host program), in reverse order of registration: workers end
  /// and communicators are freed there. Every rank has come to its end then. Returns a handle for `forget`.
  int at_close(std::function<void()> close);
  void forget(int handle) noexcept;

  /// Runs what at_close collected, once; MPI is not usable afterwards.
  void close() noexcept;

 private:
  Session();  // mpi_session.cpp or no_mpi_session.cpp, as CMake chooses

  Process process_;
  CloseList close_list_;
  std::atomic<bool> usable_{false};
  std::atomic<std::int64_t> asked_exit_ms_{0};
  std::int64_t ordered_exit_ms_ = 0;
};

/// A wait that is as good as for ever, and that can be added to a point in time.
constexpr std::chrono::milliseconds kLongestWait = std::chrono::hours(24 * 365);

/// Rank and size in the whole job, for texts; 0 of 1 until the session knows better. Starts no session.
[[nodiscard]] Site job_site() noexcept;
void set_job_site(Site site) noexcept;

/// Throws a UsageError of this process, for calls that belong to no group.
[[noreturn]] void job_usage_error(std::string_view call, std::string_view text);

/// Ends all ranks of the job with `code` where MPI is usable, and this process in any case. Prints nothing.
[[noreturn]] void end_all_ranks(int code) noexcept;

/// Name and version of the MPI that accel was built with, for people. Starts no session.
[[nodiscard]] std::string mpi_library();

/// A call in numbers: nothing is formatted unless the call is reported.
struct CallFacts {
  const char* operation = "";  ///< static text, as in "all_reduce"
  std::uint64_t number = 0;    ///< which call of its group, counted from 1; 0: not counted
  std::int64_t bytes = -1;     ///< payload; negative: has none
  Site site;                   ///< within the call's group
};

/// `accel[1/4] all_reduce #118 (26,214,400 bytes): no answer for 60 s; ...`, what TimeoutError and the watchdog say.
[[nodiscard]] std::string timeout_text(const CallFacts& facts, std::chrono::milliseconds timeout);

/// Names a call that may block, so that the watchdog can say what a silent rank was waiting in. When `timeout` has
/// passed it prints timeout_text, once, and, where the policy is kAbortJob, ends the job; a time-out of zero or less
/// watches nothing. No lock and no system call on entry and exit but once in a time-out; the watchdog is one thread a
/// process, started by the first call, and never calls MPI but MPI_Abort.
class BlockingCall {
 public:
  BlockingCall(const CallFacts& facts, std::chrono::milliseconds timeout, OnFailure policy);
  /// The same for a call that has its own words: `describe` takes the place of `all_reduce #118 (...)`.
  BlockingCall(const std::string& describe, std::chrono::milliseconds timeout, OnFailure policy);
  ~BlockingCall();
  BlockingCall(const BlockingCall&) = delete;
  BlockingCall& operator=(const BlockingCall&) = delete;

 private:
  int slot_ = -1;
};

}  // namespace accel::detail
