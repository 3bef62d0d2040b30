// Windows of one process, all of them up to eight: which micro-batches close, and what the gradient then is. The oracle
// below knows the rule only, and adds numbers up.
#include "support/captured_stderr.hpp"
#include "support/probe.hpp"
#include "support/rank_expect.hpp"
#include "support/torch_doctest.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

using namespace accel;
using namespace accel::test;

namespace {

enum class End { kLoader, kLoaderIgnored, kLastGiven, kLastDenied, kNobody };

struct Oracle {
  int steps = 1;
  TailPolicy tail = TailPolicy::kDivideByActual;
  std::string pattern = {};
  double w = 0.0;
  int count = 0;
  double sum = 0.0;

  void micro(double x, bool last) {
    ++count;
    sum += x;
    const bool closes = last || count == steps;
    pattern += closes ? 'S' : '.';
    if (!closes) return;
    w -= sum / (tail == TailPolicy::kDivideByActual ? count : steps);
    count = 0;
    sum = 0.0;
  }
};

// x of a micro-batch: all differ, so that one lost, doubled or moved to another window shows.
double x_of(int epoch, int index) {
  return std::pow(1.7, index) + 100.0 * epoch;
}

void run_epoch(Rig& rig, int epoch, int length, End end, std::string& pattern) {
  std::vector<double> x;
  for (int index = 0; index < length; ++index) x.push_back(x_of(epoch, index));
  if (end == End::kLoader || end == End::kLoaderIgnored || end == End::kLastDenied) {
    const std::optional<bool> last = end == End::kLastDenied ? std::optional(false) : std::nullopt;
    for (auto& batch : rig.accelerator.prepare(make_data_loader(Values{x})))
      pattern += rig.micro(batch, {.last = last});
    return;
  }
  for (int index = 0; index < length; ++index)
    pattern += rig.micro({x[static_cast<std::size_t>(index)]},
                         {.last = end == End::kLastGiven ? std::optional(index + 1 == length) : std::nullopt});
}

void explore(int steps, int length, int epochs, End end, TailPolicy tail, bool each) {
  Rig rig({.gradient_accumulation_steps = steps,
           .tail_policy = tail,
           .sync_with_dataloader = end != End::kLoaderIgnored,
           .sync_each_batch = each},
          at::kDouble);
  Oracle oracle{.steps = steps, .tail = tail};
  // A loader's end is seen whatever else the program says of its micro-batches.
  const bool seen = end == End::kLoader || end == End::kLastGiven || end == End::kLastDenied;
  std::string pattern;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    run_epoch(rig, epoch, length, end, pattern);
    for (int index = 0; index < length; ++index) oracle.micro(x_of(epoch, index), seen && index + 1 == length);
  }
  CAPTURE(steps);
  CAPTURE(length);
  CAPTURE(epochs);
  CAPTURE(static_cast<int>(end));
  CHECK(pattern == oracle.pattern);
  CHECK(rig.accelerator.pending_micro_batches(rig.probe) == oracle.count);
  CHECK(rig.probe->value() == doctest::Approx(oracle.w).epsilon(1e-12));
  CHECK(rig.optimizer.steps() == static_cast<int>(std::count(pattern.begin(), pattern.end(), 'S')));
}

}  // namespace

TEST_CASE(
    "every window up to n = 8, eight micro-batches and two epochs closes where the rule says, with the right mean") {
  const CapturedStderr notices;  // of loops without a loader
  for (int steps = 1; steps <= 8; ++steps)
    for (int length = 1; length <= 8; ++length)
      for (int epochs = 1; epochs <= 2; ++epochs)
        for (const End end : {End::kLoader, End::kLoaderIgnored, End::kLastGiven, End::kLastDenied, End::kNobody})
          for (const TailPolicy tail : {TailPolicy::kDivideByActual, TailPolicy::kDivideByConfigured})
            for (const bool each : {false, true}) explore(steps, length, epochs, end, tail, each);
}

TEST_CASE("a guard says at entry what its micro-batch does") {
  Rig rig({.gradient_accumulation_steps = 2});
  CHECK(rig.accelerator.sync_gradients());
  {
    const auto micro = rig.accelerator.accumulate(rig.probe);
    CHECK_FALSE(micro.syncs());
    CHECK_FALSE(micro.closes_window());
    CHECK_FALSE(rig.accelerator.sync_gradients());
    rig.accelerator.backward(rig.probe->loss({1.0}));
  }
  {
    const auto micro = rig.accelerator.accumulate(rig.probe);
    CHECK(micro.syncs());
    CHECK(micro.closes_window());
    CHECK(rig.accelerator.sync_gradients());
    rig.accelerator.backward(rig.probe->loss({1.0}));
  }
  Rig each({.gradient_accumulation_steps = 2, .sync_each_batch = true});
  const auto micro = each.accelerator.accumulate(each.probe);
  CHECK(micro.syncs());
  CHECK_FALSE(micro.closes_window());
}

TEST_CASE("the number of steps may change at any time; the window that is open is divided by what it held") {
  for (const int before : {1, 2, 3, 4, 8})
    for (const int after : {1, 2, 3, 5, 8})
      for (int change = 0; change <= 4; ++change) {
        Rig rig({.gradient_accumulation_steps = before}, at::kDouble);
        Oracle oracle{.steps = before};
        std::string pattern;
        for (int micro = 0; micro < 12; ++micro) {
          if (micro == change) {
            rig.accelerator.set_gradient_accumulation_steps(after);
            oracle.steps = after;
          }
          const bool overdue = oracle.count + 1 >= oracle.steps;
          pattern += rig.micro({x_of(0, micro)});
          oracle.micro(x_of(0, micro), overdue);
        }
        CAPTURE(before);
        CAPTURE(after);
        CAPTURE(change);
        CHECK(rig.accelerator.gradient_accumulation_steps() == after);
        CHECK(pattern == oracle.pattern);
        CHECK(rig.probe->value() == doctest::Approx(oracle.w).epsilon(1e-12));
      }
}

TEST_CASE("a loop that ends inside a window, and is not closed, is told of when the accelerator goes") {
  const auto told = [](bool closes) {
    const CapturedStderr captured;
    {
      Rig rig({.gradient_accumulation_steps = 4});
      std::vector<double> x(10, 1.0);
      int left = 6;
      for (auto& batch : rig.accelerator.prepare(make_data_loader(Values{x}))) {
        rig.micro(batch);
        if (--left == 0) break;
      }
      if (closes) {
        rig.accelerator.finish_window(rig.probe);
        CHECK(rig.optimizer.step() == Stepped::kYes);
      }
      CHECK(captured.text().empty());
    }
    return captured.text();
  };
  CHECK(contains(told(false), "the last 2 micro-batches of model 0 (w, ...) were in a window that never closed"));
  CHECK(told(true).empty());
}

TEST_CASE("an optimizer that was prepared and then stepped itself is noticed: its gradients pile up") {
  const auto told = [](bool raw) {
    const CapturedStderr captured;
    Rig rig;
    for (int micro = 0; micro < 3; ++micro) {
      const auto guard = rig.accelerator.accumulate(rig.probe);
      rig.accelerator.backward(rig.probe->loss({1.0}));
      if (raw)
        rig.sgd.step();
      else
        rig.optimizer.step();
      rig.optimizer.zero_grad();
    }
    return captured.text();
  };
  const std::string text = told(true);
  CHECK(contains(text, "the gradients of the last window of model 0 (w, ...) are still there"));
  CHECK(text.find("are still there") == text.rfind("are still there"));  // said once
  CHECK(told(false).empty());
}

TEST_CASE("by hand and through accel, full windows give the same bits") {
  for (const int steps : {1, 2, 3, 4, 7}) {
    Rig rig({.gradient_accumulation_steps = steps});
    Probe by_hand;
    torch::optim::SGD sgd(by_hand->parameters(), 1.0);
    for (int micro = 0; micro < 3 * steps; ++micro) {
      const std::vector<double> x{0.1 * micro + 0.3, 1.0 / (micro + 1)};
      rig.micro(x);
      (by_hand->loss(x) / steps).backward();
      if ((micro + 1) % steps != 0) continue;
      sgd.step();
      sgd.zero_grad();
      CHECK(rig.probe->value() == by_hand->value());
    }
  }
}
