#include "core/env.hpp"
#include "support/temporary_environment.hpp"

#include <accel/error.hpp>

#include <doctest/doctest.h>

using namespace accel;
using namespace accel::detail;
using accel::test::TemporaryVariable;

constexpr const char* kName = "ACCEL_TEST_VARIABLE";

TEST_CASE("a variable that is unset or empty is nothing") {
  {
    const TemporaryVariable unset(kName, nullptr);
    CHECK_FALSE(env_text(kName).has_value());
    CHECK_FALSE(env_integer(kName).has_value());
    CHECK_FALSE(env_flag(kName).has_value());
  }
  const TemporaryVariable empty(kName, "");
  CHECK_FALSE(env_text(kName).has_value());
  CHECK_FALSE(env_integer(kName).has_value());
  CHECK_FALSE(env_flag(kName).has_value());
}

TEST_CASE("a whole number is read with its sign") {
  const TemporaryVariable set(kName, "-42");
  CHECK(env_integer(kName) == -42);
  CHECK(env_text(kName) == "-42");
}

TEST_CASE("text that is no whole number is an error that names variable and text") {
  for (const char* text : {"12x", "x", "1.5", " 1", "99999999999999999999"}) {
    const TemporaryVariable set(kName, text);
    CAPTURE(text);
    CHECK_THROWS_WITH_AS(env_integer(kName), doctest::Contains(kName), UsageError);
    CHECK_THROWS_WITH_AS(env_integer(kName), doctest::Contains(text), UsageError);
  }
}

TEST_CASE("a flag is 1/true/yes/on or 0/false/no/off in any case, else an error") {
  for (const char* text : {"1", "true", "YES", "On"}) {
    const TemporaryVariable set(kName, text);
    CHECK(env_flag(kName) == true);
  }
  for (const char* text : {"0", "False", "no", "OFF"}) {
    const TemporaryVariable set(kName, text);
    CHECK(env_flag(kName) == false);
  }
  const TemporaryVariable set(kName, "maybe");
  CHECK_THROWS_WITH_AS(env_flag(kName), doctest::Contains("'maybe'"), UsageError);
}
