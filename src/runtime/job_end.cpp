#include "runtime/job_end.hpp"

#include "core/log.hpp"
#include "runtime/exit_barrier.hpp"
#include "runtime/session.hpp"

#include <cxxabi.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace accel::detail {
namespace {

using Clock = std::chrono::steady_clock;

// After this long the ranks that are waited for are named once, so that nobody needs to guess until the time-out.
constexpr auto kReminder = std::chrono::seconds(30);

MPI_Comm exit_communicator = MPI_COMM_NULL;
pid_t owner = 0;
std::terminate_handler earlier_handler = nullptr;

// A child made by fork shares our handlers, but not our place in the job.
bool own_process() {
  return ::getpid() == owner;
}

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                                         &std::free);
  return status == 0 && text ? text.get() : name;
}

std::string describe_current_exception() {
  const std::type_info* type = abi::__cxa_current_exception_type();
  if (type == nullptr) return "std::terminate was called without an exception";
  const std::string name = demangled(type->name());
  try {
    throw;
  } catch (const std::exception& error) {
    return cat("uncaught ", name, ": ", error.what());
  } catch (...) {
    return cat("uncaught ", name);
  }
}

// What the program printed before its end would be lost with the buffer; a thread that holds stdout is not waited for.
void write_out_stdout() {
  if (::ftrylockfile(stdout) != 0) return;
  ::fflush_unlocked(stdout);
  ::funlockfile(stdout);
}

[[noreturn]] void end_with(int status, const std::string& why) {
  log(LogLevel::kError, job_site(), "exit", cat(why, "; ending the job"));
  write_out_stdout();
  // Only these 8 bits reach the launcher, and a failed job must not look like a good one.
  const int code = status & 0xff;
  end_all_ranks(code == 0 ? 1 : code);
}

[[noreturn]] void on_terminate() {
  if (!own_process() || !Session::get().usable()) {
    if (earlier_handler != nullptr) earlier_handler();
    std::abort();
  }
  end_with(1, describe_current_exception());
}

std::string list_of(const std::vector<int>& ranks) {
  if (ranks.empty()) return "some ranks";
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) text += cat(i == 0 ? "" : ", ", ranks[i]);
  return text;
}

bool lowest_that_came(const std::vector<int>& missing) {
  for (int rank = 0; rank < job_site().rank; ++rank)
    if (std::find(missing.begin(), missing.end(), rank) == missing.end()) return false;
  return true;
}

void wait_for_the_others(std::chrono::milliseconds timeout) {
  ExitBarrier barrier(exit_communicator);
  const auto start = Clock::now();
  auto pause = std::chrono::microseconds(0);
  bool reminded = false;
  while (!barrier.complete()) {
    const auto waited = Clock::now() - start;
    if (waited >= timeout)
      end_with(1, cat(list_of(barrier.missing()), " did not come to the end of the program within ",
                      static_cast<double>(timeout.count()) / 1000.0, " s of this rank (ACCEL_EXIT_TIMEOUT)"));
    if (waited >= kReminder && !reminded) {
      reminded = true;
      const auto missing = barrier.missing();
      if (lowest_that_came(missing)) log(LogLevel::kWarning, job_site(), "exit", cat("waiting for ", list_of(missing)));
    }
    // Most ranks come together: at first the core is only offered, later it is left to those that still work.
    if (waited < std::chrono::milliseconds(1)) {
      std::this_thread::yield();
    } else {
      pause = std::min(pause + std::chrono::microseconds(50), std::chrono::microseconds(1000));
      std::this_thread::sleep_for(pause);
    }
  }
}

void leave_together() {
  Session& session = Session::get();
  const auto timeout = session.exit_timeout();
  wait_for_the_others(timeout);
  // A worker that waits for a call its peer never makes would hold the process in `close`.
  const BlockingCall watched("exit (closing groups and MPI)", timeout, OnFailure::kAbortJob);
  session.close();
  check_mpi(MPI_Comm_free(&exit_communicator), "MPI_Comm_free");
  check_mpi(MPI_Finalize(), "MPI_Finalize");
}

void on_exit_of_process(int status, void*) {
  if (!own_process() || !Session::get().usable()) return;
  std::cout.flush();
  if (status != 0) end_with(status, cat("main returned or exit() was called with status ", status));
  if (std::uncaught_exceptions() > 0) end_with(1, "exit() was called while an exception was on its way");
  try {
    leave_together();
  } catch (const std::exception& error) {
    end_with(1, error.what());
  }
}

}  // namespace

void own_the_end(MPI_Comm world) {
  exit_communicator = world;
  owner = ::getpid();
  earlier_handler = std::set_terminate(on_terminate);
  // atexit does not tell the status.
  if (::on_exit(on_exit_of_process, nullptr) != 0)
    log(LogLevel::kWarning, job_site(), "process",
        "no exit handler could be set: call MPI_Finalize at the end of main");
}

}  // namespace accel::detail
