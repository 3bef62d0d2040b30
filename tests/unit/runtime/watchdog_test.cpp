#include "runtime/session.hpp"
#include "support/captured_stderr.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace accel;
using namespace accel::detail;
using accel::test::CapturedStderr;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

namespace {

const CallFacts kFacts{.operation = "all_reduce", .number = 118, .bytes = 26214400, .site = {1, 4}};

// What was written until `lines` lines are there, or ten seconds have passed.
std::string text_with_lines(const CapturedStderr& captured, std::ptrdiff_t lines) {
  const auto start = Clock::now();
  for (;;) {
    const std::string text = captured.text();
    if (std::count(text.begin(), text.end(), '\n') >= lines || Clock::now() - start > seconds(10)) return text;
    std::this_thread::sleep_for(milliseconds(2));
  }
}

}  // namespace

TEST_CASE("a time-out text names rank, call, number, bytes and the wait") {
  CHECK(timeout_text(kFacts, seconds(60)) ==
        "accel[1/4] all_reduce #118 (26,214,400 bytes): no answer for 60 s; a rank is gone, works much longer than the "
        "others or made other calls; raise the time-out (GroupOptions::timeout) if it is only slow");
  CHECK(timeout_text({.operation = "barrier", .site = {0, 2}}, milliseconds(1500))
            .starts_with("accel[0/2] barrier: no answer for 1.5 s; "));
}

TEST_CASE("a call whose deadline passes is named once while it still waits") {
  const CapturedStderr captured;
  {
    const BlockingCall call(kFacts, milliseconds(30), OnFailure::kThrow);
    const std::string text = text_with_lines(captured, 1);
    CHECK(text.starts_with("accel[1/4] all_reduce #118 (26,214,400 bytes): error: no answer for 0.03 s; "));
    CHECK(text.find("ending the job") == std::string::npos);
  }
  // The next report comes after any second one of the first call would have.
  const BlockingCall other("closing", milliseconds(60), OnFailure::kThrow);
  const std::string text = text_with_lines(captured, 2);
  CHECK(std::count(text.begin(), text.end(), '\n') == 2);
  CHECK(text.find("\naccel[0/1] closing: error: no answer for 0.06 s; ") != std::string::npos);
}

TEST_CASE("calls that end in time are not named") {
  const CapturedStderr captured;
  for (int i = 0; i < 1000; ++i) const BlockingCall call(kFacts, milliseconds(200), OnFailure::kThrow);
  const BlockingCall last("the last call", milliseconds(300), OnFailure::kThrow);
  CHECK(text_with_lines(captured, 1).starts_with("accel[0/1] the last call: "));
}

TEST_CASE("a nearer deadline is kept although a far one was there first") {
  const CapturedStderr captured;
  const BlockingCall far("far", std::chrono::hours(1), OnFailure::kThrow);
  const auto start = Clock::now();
  const BlockingCall near("near", milliseconds(20), OnFailure::kThrow);
  CHECK(text_with_lines(captured, 1).starts_with("accel[0/1] near: "));
  CHECK(Clock::now() - start < seconds(5));
}

TEST_CASE("time-outs of zero and of for ever watch nothing, and more calls than slots do no harm") {
  const CapturedStderr captured;
  std::deque<std::unique_ptr<BlockingCall>> calls;
  for (int i = 0; i < 300; ++i)
    calls.push_back(std::make_unique<BlockingCall>(kFacts, milliseconds::max(), OnFailure::kThrow));
  calls.clear();
  const BlockingCall none("none", milliseconds(0), OnFailure::kThrow);
  const BlockingCall last("last", milliseconds(20), OnFailure::kThrow);
  CHECK(text_with_lines(captured, 1).starts_with("accel[0/1] last: "));
}

TEST_CASE("calls of several threads are watched at the same time") {
  const CapturedStderr captured;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([] {
      for (int i = 0; i < 20000; ++i) const BlockingCall call(kFacts, seconds(30), OnFailure::kThrow);
    });
  for (auto& thread : threads) thread.join();
  CHECK(captured.text().empty());
}

TEST_CASE("watching costs less than a microsecond a call") {
  double best_ns = 1e9;
  for (int batch = 0; batch < 20; ++batch) {
    constexpr int kCalls = 20000;
    const auto start = Clock::now();
    for (int i = 0; i < kCalls; ++i) const BlockingCall call(kFacts, std::chrono::minutes(30), OnFailure::kThrow);
    best_ns = std::min(best_ns, std::chrono::duration<double, std::nano>(Clock::now() - start).count() / kCalls);
  }
  MESSAGE("ns a call: ", best_ns);
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  CHECK(best_ns < 1000);
#endif
}
