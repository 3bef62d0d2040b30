#include "core/log.hpp"
#include "runtime/session.hpp"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace accel::detail {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

// Values of Slot::deadline that are no time.
constexpr std::int64_t kFree = 0;
constexpr std::int64_t kTaken = -1;      // the owner writes the other fields
constexpr std::int64_t kReporting = -2;  // the watchdog reads them; the owner waits
constexpr std::int64_t kReported = -3;

struct alignas(64) Slot {
  std::atomic<std::int64_t> deadline{kFree};  // steady clock, ns
  CallFacts facts;
  std::string describe;  // instead of facts, where not empty
  std::chrono::milliseconds timeout{0};
  OnFailure policy = OnFailure::kThrow;
};

// More calls than this at one time (one a group and thread) are not watched.
constexpr int kSlots = 128;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

std::string no_answer(std::chrono::milliseconds timeout) {
  return cat("no answer for ", static_cast<double>(timeout.count()) / 1000.0,
             " s; a rank is gone, works much longer than the others or made other calls; raise the time-out ",
             "(GroupOptions::timeout) if it is only slow");
}

std::string name_of(const CallFacts& facts) {
  std::string name = facts.operation;
  if (facts.number > 0) name += cat(" #", facts.number);
  if (facts.bytes >= 0) name += cat(" (", grouped(facts.bytes), " bytes)");
  return name;
}

// Note [No tick]: the thread sleeps until the nearest deadline it saw when it last looked, and a call wakes it only if
// its own deadline is nearer still. Calls mostly ask for the same time-out, so that their deadlines only move on: the
// thread looks once in a time-out and calls pay two atomic operations. Both sides order "my store, then your load"
// sequentially: either the scan sees the slot, or the call sees the next look and compares with it.
class Watchdog {
 public:
  static Watchdog& get() {
    // Never destroyed and its thread never joined: it may be the one that ends the process.
    static Watchdog* const watchdog = new Watchdog();
    return *watchdog;
  }

  template <class Fill>
  int open(std::chrono::milliseconds timeout, Fill fill) {
    const int index = take();
    if (index < 0) return index;
    Slot& slot = slots_[static_cast<std::size_t>(index)];
    fill(slot);
    // Half of the clock's range is 146 years: "for ever" in any unit stays a time.
    const std::int64_t ms = std::min<std::int64_t>(timeout.count(), kNever / 2'000'000);
    const std::int64_t deadline = now_ns() + ms * 1'000'000;
    slot.deadline.store(deadline);
    if (deadline < next_look_.load()) wake();
    return index;
  }

  void close(int index) {
    Slot& slot = slots_[static_cast<std::size_t>(index)];
    std::int64_t seen = slot.deadline.load();
    for (;;) {
      if (seen == kReporting) {
        std::this_thread::yield();
        seen = slot.deadline.load();
      } else if (slot.deadline.compare_exchange_weak(seen, kFree)) {
        return;
      }
    }
  }

 private:
  Watchdog() = default;

  int take() {
    thread_local unsigned last = 0;
    for (unsigned step = 0; step < kSlots; ++step) {
      const unsigned index = (last + step) % kSlots;
      std::int64_t expected = kFree;
      if (slots_[index].deadline.compare_exchange_strong(expected, kTaken)) {
        last = index;
        return static_cast<int>(index);
      }
    }
    return -1;
  }

  void wake() {
    const std::lock_guard lock(mutex_);
    if (!started_) start();
    woken_ = true;
    condition_.notify_one();
  }

  void start() {
    try {
      std::thread([this] { watch(); }).detach();
      started_ = true;
    } catch (const std::system_error& error) {
      log_once("watchdog", LogLevel::kWarning, job_site(), "watchdog",
               cat("calls are not watched, no thread: ", error.what()));
    }
  }

  void watch() {
    std::unique_lock lock(mutex_);
    for (;;) {
      woken_ = false;
      next_look_.store(kNever);
      const std::int64_t nearest = scan(lock);
      next_look_.store(nearest);
      const auto called = [this] { return woken_; };
      if (nearest == kNever)
        condition_.wait(lock, called);
      else
        condition_.wait_until(lock, Clock::time_point(std::chrono::nanoseconds(nearest)), called);
    }
  }

  // The nearest deadline to come; reports those that have passed. Printing does not hold the lock.
  std::int64_t scan(std::unique_lock<std::mutex>& lock) {
    const std::int64_t now = now_ns();
    std::int64_t nearest = kNever;
    for (Slot& slot : slots_) {
      std::int64_t deadline = slot.deadline.load();
      if (deadline <= 0) continue;
      if (deadline > now) {
        nearest = std::min(nearest, deadline);
      } else if (slot.deadline.compare_exchange_strong(deadline, kReporting)) {
        lock.unlock();
        report(slot);
        slot.deadline.store(kReported);
        lock.lock();
      }
    }
    return nearest;
  }

  static void report(const Slot& slot) {
    const bool worded = !slot.describe.empty();
    const std::string name = worded ? slot.describe : name_of(slot.facts);
    const bool ends = slot.policy == OnFailure::kAbortJob;
    log(LogLevel::kError, worded ? job_site() : slot.facts.site, name,
        cat(no_answer(slot.timeout), ends ? "; ending the job" : ""));
    if (ends) end_all_ranks(1);
  }

  std::array<Slot, kSlots> slots_;
  std::atomic<std::int64_t> next_look_{kNever};
  std::mutex mutex_;
  std::condition_variable condition_;
  bool started_ = false;
  bool woken_ = false;
};

}  // namespace

std::string timeout_text(const CallFacts& facts, std::chrono::milliseconds timeout) {
  return message(facts.site, name_of(facts), no_answer(timeout));
}

BlockingCall::BlockingCall(const CallFacts& facts, std::chrono::milliseconds timeout, OnFailure policy) {
  if (timeout.count() <= 0) return;
  slot_ = Watchdog::get().open(timeout, [&](Slot& slot) {
    slot.facts = facts;
    slot.describe.clear();
    slot.timeout = timeout;
    slot.policy = policy;
  });
}

BlockingCall::BlockingCall(const std::string& describe, std::chrono::milliseconds timeout, OnFailure policy) {
  if (timeout.count() <= 0) return;
  slot_ = Watchdog::get().open(timeout, [&](Slot& slot) {
    slot.describe = describe;
    slot.timeout = timeout;
    slot.policy = policy;
  });
}

BlockingCall::~BlockingCall() {
  if (slot_ >= 0) Watchdog::get().close(slot_);
}

}  // namespace accel::detail
