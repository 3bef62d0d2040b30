#include "runtime/close_list.hpp"
#include "support/captured_stderr.hpp"

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>

using accel::detail::CloseList;
using accel::test::CapturedStderr;

TEST_CASE("entries run once, the latest first, without those that were forgotten") {
  CloseList list;
  std::string order;
  list.add([&] { order += "a"; });
  const int b = list.add([&] { order += "b"; });
  list.add([&] { order += "c"; });
  list.forget(b);
  list.forget(1000);
  list.run();
  CHECK(order == "ca");
  list.run();
  CHECK(order == "ca");
}

TEST_CASE("an entry may forget and add others while the list runs") {
  CloseList list;
  std::string order;
  const int a = list.add([&] { order += "a"; });
  list.add([&] {
    order += "b";
    list.forget(a);
    list.add([&] { order += "d"; });
  });
  list.run();
  CHECK(order == "bd");
}

TEST_CASE("an entry that throws is reported and the others still run") {
  CloseList list;
  bool ran = false;
  list.add([&] { ran = true; });
  list.add([] { throw std::runtime_error("no luck"); });
  list.add([] { throw 1; });
  const CapturedStderr captured;
  list.run();
  CHECK(ran);
  CHECK(captured.text() ==
        "accel[0/1] close: error: an exception of an unknown type\naccel[0/1] close: error: no luck\n");
}
