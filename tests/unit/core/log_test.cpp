#include "core/log.hpp"
#include "support/captured_stderr.hpp"

#include <doctest/doctest.h>

using namespace accel::detail;
using accel::test::CapturedStderr;

TEST_CASE("case 97: a line logged before anything is initialised reaches stderr with rank, call and level") {
  const CapturedStderr captured;
  log(LogLevel::kWarning, {1, 4}, "prepare", "slow");
  log(LogLevel::kError, {0, 1}, "step", "bad");
  CHECK(captured.text() == "accel[1/4] prepare: warning: slow\naccel[0/1] step: error: bad\n");
}

TEST_CASE("lines below the threshold, by default a warning, are left out") {
  const CapturedStderr captured;
  log(LogLevel::kInfo, {}, "prepare", "detail");
  log(LogLevel::kDebug, {}, "prepare", "more detail");
  CHECK(captured.text().empty());
}

TEST_CASE("log_once prints each key once") {
  const CapturedStderr captured;
  for (int i = 0; i < 3; ++i) log_once("a", LogLevel::kWarning, {}, "call", "first");
  for (int i = 0; i < 3; ++i) log_once("b", LogLevel::kWarning, {}, "call", "second");
  CHECK(captured.text() == "accel[0/1] call: warning: first\naccel[0/1] call: warning: second\n");
}
