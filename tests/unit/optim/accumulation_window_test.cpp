#include "optim/accumulation_window.hpp"

#include <doctest/doctest.h>

#include <string>

using accel::detail::AccumulationWindow;

namespace {

// The rule by itself: the last batch of the data closes and the count restarts, else every n-th one closes.
std::string expected_pattern(int steps, int length, int epochs, bool with_loader) {
  std::string pattern;
  int count = 0;
  for (int epoch = 0; epoch < epochs; ++epoch)
    for (int index = 0; index < length; ++index) {
      const bool last = with_loader && index + 1 == length;
      ++count;
      const bool closes = last || count == steps;
      if (closes) count = 0;
      pattern += closes ? 'S' : '.';
    }
  return pattern;
}

std::string pattern(int steps, int length, int epochs, bool with_loader) {
  AccumulationWindow window;
  std::string marks;
  for (int epoch = 0; epoch < epochs; ++epoch)
    for (int index = 0; index < length; ++index) {
      const bool closes = window.closes_next(steps, with_loader && index + 1 == length);
      window.hold();
      if (closes)
        window.reset();
      else
        window.advance();
      marks += closes ? 'S' : '.';
    }
  return marks;
}

}  // namespace

TEST_CASE("the patterns of Python's Accelerate") {
  CHECK(pattern(4, 10, 1, true) == "...S...S.S");
  CHECK(pattern(4, 7, 2, true) == "...S..S...S..S");
  CHECK(pattern(4, 7, 2, false) == "...S...S...S..");
  CHECK(pattern(4, 8, 1, true) == "...S...S");
  CHECK(pattern(4, 3, 1, true) == "..S");
  CHECK(pattern(4, 9, 2, true) == "...S...SS...S...SS");
}

TEST_CASE("every n, length and number of epochs up to eight follows the rule") {
  for (int steps = 1; steps <= 8; ++steps)
    for (int length = 1; length <= 8; ++length)
      for (int epochs = 1; epochs <= 2; ++epochs)
        for (const bool with_loader : {true, false}) {
          CAPTURE(steps);
          CAPTURE(length);
          CAPTURE(epochs);
          CHECK(pattern(steps, length, epochs, with_loader) == expected_pattern(steps, length, epochs, with_loader));
        }
}

TEST_CASE("a new window is closed to nothing and holds nothing") {
  const AccumulationWindow window;
  CHECK_FALSE(window.open());
  CHECK(window.position() == 0);
  CHECK(window.held() == 0);
  CHECK(window.items() == 0);
  CHECK_FALSE(window.by_items());
  CHECK(window.closes_next(1, false));
  CHECK_FALSE(window.closes_next(2, false));
  CHECK(window.closes_next(2, true));
}

TEST_CASE("micro-batches that took part with nothing move the position and not the divisor") {
  AccumulationWindow window;
  window.hold();
  window.advance();
  window.advance();
  CHECK(window.open());
  CHECK(window.position() == 2);
  CHECK(window.held() == 1);
  CHECK_FALSE(window.closes_next(4, false));
  CHECK(window.closes_next(3, false));
}

TEST_CASE("zero items are items, and a reset forgets them") {
  AccumulationWindow window;
  window.add_items(0);
  CHECK(window.by_items());
  window.add_items(7);
  window.hold();
  CHECK(window.items() == 7);
  CHECK(window.open());
  window.reset();
  CHECK(window.items() == 0);
  CHECK_FALSE(window.by_items());
  CHECK_FALSE(window.open());
}

TEST_CASE("a window that is longer than a reduced number of steps closes at once") {
  AccumulationWindow window;
  for (int micro = 0; micro < 3; ++micro) window.advance();
  CHECK_FALSE(window.closes_next(8, false));
  CHECK(window.closes_next(2, false));
}
