#include <accel/progress.hpp>

#include "track/progress_line.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>
#include <string>

using accel::Progress;
using accel::detail::clock_text;
using accel::detail::progress_bar;
using accel::detail::progress_summary;
using accel::detail::ProgressFacts;

namespace {

const ProgressFacts kHalf{
    .label = "epoch 1/8", .unit = "it", .status = "loss 0.5", .done = 50, .total = 100, .seconds = 20};

}  // namespace

TEST_CASE("times are short") {
  CHECK(clock_text(0.0) == "0:00");
  CHECK(clock_text(7.99) == "0:07");
  CHECK(clock_text(754) == "12:34");
  CHECK(clock_text(3723) == "1:02:03");
  CHECK(clock_text(-1) == "0:00");
}

TEST_CASE("a bar shows part, count, time, remaining time, rate and status") {
  CHECK(progress_bar(kHalf, 100) ==
        "epoch 1/8  50%[###############...............] 50/100 0:20<0:20 2.50 it/s loss 0.5");
}

TEST_CASE("a narrow terminal gets a shorter bar, then none, and never a wrapped line") {
  CHECK(progress_bar(kHalf, 62) == "epoch 1/8  50%[#####.....] 50/100 0:20<0:20 2.50 it/s loss 0.5");
  CHECK(progress_bar(kHalf, 50) == "epoch 1/8  50% 50/100 0:20<0:20 2.50 it/s loss 0.5");
  for (std::size_t columns = 0; columns <= 100; ++columns) CHECK(progress_bar(kHalf, columns).size() <= columns);
}

TEST_CASE("texts are cut between characters") {
  ProgressFacts facts{.label = "\xc3\xa4\xc3\xb6", .unit = "it", .done = 1};
  CHECK(progress_bar(facts, 1) == "\xc3\xa4");
}

TEST_CASE("an unknown total, no step yet and too many steps are shown without nonsense") {
  CHECK(progress_bar({.unit = "it", .done = 30, .seconds = 2}, 80) == "30 0:02 15.0 it/s");
  CHECK(progress_bar({.unit = "it", .total = 4}, 40) == "  0%[................] 0/4 0:00<? ? it/s");
  CHECK(progress_bar({.unit = "it", .done = 6, .total = 4, .seconds = 1}, 80).find("100%[####") == 0);
}

TEST_CASE("a log gets one plain line, when it is finished") {
  CHECK(progress_summary(kHalf) == "epoch 1/8: 50/100 in 0:20, 2.50 it/s, loss 0.5");
  std::ostringstream out;
  {
    Progress progress(3, {.label = "epoch 1/2", .out = &out});
    for (int i = 0; i < 3; ++i) progress.advance();
    progress.set_status("loss 0.25");
    CHECK(out.str().empty());
    CHECK(progress.done() == 3);
    progress.finish();
    progress.finish();
  }
  const std::string text = out.str();
  CHECK(text.find("epoch 1/2: 3/3 in 0:00, ") == 0);
  CHECK(text.find(", loss 0.25\n") == text.size() - 12);
  CHECK(text.find('\r') == std::string::npos);
}

TEST_CASE("a terminal gets a bar redrawn in place, seldom, and a line end at the end") {
  std::ostringstream out;
  Progress progress(100000, {.out = &out, .terminal = true});
  for (int i = 0; i < 100000; ++i) progress.advance();
  progress.finish();
  const std::string text = out.str();
  CHECK(text[0] == '\r');
  CHECK(text.find("100%[") != std::string::npos);
  CHECK(text.substr(text.size() - 4) == "\x1b[K\n");
  CHECK(std::count(text.begin(), text.end(), '\r') <= 20);
  CHECK(std::count(text.begin(), text.end(), '\n') == 1);
}

TEST_CASE("a disabled progress is silent and still counts") {
  std::ostringstream out;
  {
    Progress progress(3, {.enabled = false, .out = &out, .terminal = true});
    progress.advance(2);
    CHECK(progress.done() == 2);
  }
  CHECK(out.str().empty());
}
