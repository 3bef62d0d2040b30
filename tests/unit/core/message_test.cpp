#include "core/message.hpp"

#include <accel/source_location.hpp>

#include <doctest/doctest.h>

using namespace accel::detail;

TEST_CASE("an error text begins with rank, size and call") {
  CHECK(message({2, 4}, "all_reduce", cat("expected ", 3, " ranks")) == "accel[2/4] all_reduce: expected 3 ranks");
}

TEST_CASE("numbers are grouped by thousands") {
  CHECK(grouped(0) == "0");
  CHECK(grouped(999) == "999");
  CHECK(grouped(1000) == "1,000");
  CHECK(grouped(26214400) == "26,214,400");
  CHECK(grouped(-1234567) == "-1,234,567");
  CHECK(grouped(-999) == "-999");
}

TEST_CASE("a place is the file's name without its folder, and the line") {
  const accel::SourceLocation here = accel::SourceLocation::current();
  CHECK(place(here) == cat(" (message_test.cpp:", here.line(), ")"));
  CHECK(place(accel::SourceLocation{}).empty());
}
