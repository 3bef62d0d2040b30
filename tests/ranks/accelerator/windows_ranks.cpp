// When windows close, by what they are divided, and that nothing is sent in between.
#include "support/captured_stderr.hpp"
#include "support/probe.hpp"
#include "support/rank_expect.hpp"
#include "support/torch_doctest.hpp"

#include <accel/error.hpp>

using namespace accel;
using namespace accel::test;

namespace {

struct CountingSchedule {
  int steps = 0;
  void step() { ++steps; }
};

/// The usual loop over a loader of ones, `length` micro-batches on each rank.
std::string train(Rig& rig, std::size_t length, int epochs = 1) {
  const auto loader = rig.accelerator.prepare(ones_loader(length, ranks()));
  std::string pattern;
  for (int epoch = 0; epoch < epochs; ++epoch)
    for (auto& batch : loader) pattern += rig.micro(batch);
  return pattern;
}

}  // namespace

TEST_CASE("case 1: a short last window is divided by what it held, or by n as Accelerate does") {
  Rig actual({.gradient_accumulation_steps = 4});
  CHECK(train(actual, 7) == "...S..S");
  CHECK(actual.probe->value() == -2.0);
  CHECK(actual.optimizer.steps() == 2);
  Rig configured({.gradient_accumulation_steps = 4, .tail_policy = TailPolicy::kDivideByConfigured});
  CHECK(train(configured, 7) == "...S..S");
  CHECK(configured.probe->value() == -1.75);
  CHECK(configured.optimizer.steps() == 2);
}

TEST_CASE("case 1: a short window of several sizes, each rank with values of its own") {
  for (int n = 1; n <= 5; ++n)
    for (int length = 1; length <= n; ++length) {
      Rig rig({.gradient_accumulation_steps = n}, at::kDouble);
      double sum = 0.0;
      for (int micro = 0; micro < length; ++micro) {
        rig.micro({(rank() + 1.0) * (micro + 2.0)}, {.last = micro + 1 == length});
        sum += mean_over_ranks([&](int r) { return (r + 1.0) * (micro + 2.0); });
      }
      CHECK(rig.probe->value() == doctest::Approx(-sum / length).epsilon(1e-12));
      CHECK(same_on_all_ranks(rig.probe->w));
    }
}

TEST_CASE("case 2: a window of summed losses is divided by its items, not by means of means") {
  Rig rig({.gradient_accumulation_steps = 2});
  const auto micro = [&](const std::vector<double>& x) {
    const auto guard = rig.accelerator.accumulate(rig.probe);
    rig.accelerator.backward(rig.probe->sum(x), {.items = static_cast<std::int64_t>(x.size())});
    return rig.finish();
  };
  CHECK(micro({8.0}) == '.');
  CHECK(micro({0.0, 0.0, 0.0}) == 'S');
  CHECK(rig.probe->value() == -2.0);
  Rig means({.gradient_accumulation_steps = 2});
  means.micro({8.0});
  means.micro({0.0, 0.0, 0.0});
  CHECK(means.probe->value() == -4.0);
}

TEST_CASE("case 3: items are counted over the window on all ranks") {
  const std::vector<std::vector<double>> even{{8.0}, {0.0, 0.0, 0.0}};
  const std::vector<std::vector<double>> odd{{2.0, 2.0}, {4.0, 4.0, 4.0, 4.0}};
  for (const bool each : {false, true}) {
    Rig rig({.gradient_accumulation_steps = 2, .sync_each_batch = each}, at::kDouble);
    for (const auto& x : rank() % 2 == 0 ? even : odd) {
      const auto guard = rig.accelerator.accumulate(rig.probe);
      rig.accelerator.backward(rig.probe->sum(x), {.items = static_cast<std::int64_t>(x.size())});
      rig.finish();
    }
    CHECK(rig.probe->value() == doctest::Approx(ranks() == 1 ? -2.0 : -2.8).epsilon(1e-12));
    CHECK(same_on_all_ranks(rig.probe->w));
  }
}

TEST_CASE("items: a window may be short, a micro-batch may have none, several losses add up") {
  Rig rig({.gradient_accumulation_steps = 4}, at::kDouble);
  const auto guarded = [&](const std::vector<double>& x, bool last) {
    const auto guard = rig.accelerator.accumulate(rig.probe, {.last = last});
    rig.accelerator.backward(rig.probe->sum(x), {.items = static_cast<std::int64_t>(x.size())});
    return rig.finish();
  };
  // Rank r holds r items of 10: 10 whatever their number, and rank 0 brings one of 10 in the second micro-batch.
  CHECK(guarded(std::vector<double>(static_cast<std::size_t>(rank()), 10.0), false) == '.');
  CHECK(guarded(std::vector<double>(rank() == 0 ? 1 : 0, 10.0), true) == 'S');
  CHECK(rig.probe->value() == doctest::Approx(-10.0).epsilon(1e-12));
}

TEST_CASE("items: none in the whole window on any rank is no gradient and no step, and the next window is exact") {
  Rig rig({.gradient_accumulation_steps = 2});
  const auto micro = [&](const std::vector<double>& x) {
    const auto guard = rig.accelerator.accumulate(rig.probe);
    rig.accelerator.backward(rig.probe->sum(x), {.items = static_cast<std::int64_t>(x.size())});
    return rig.finish();
  };
  const CapturedStderr log;
  CHECK(micro({}) == '.');
  CHECK(micro({}) == '.');
  CHECK(contains(log.text(), "no items"));
  CHECK_FALSE(rig.probe->w.grad().defined());
  CHECK(rig.accelerator.pending_micro_batches(rig.probe) == 0);
  CHECK(micro({4.0}) == '.');
  CHECK(micro({2.0, 3.0}) == 'S');
  CHECK(rig.probe->value() == -3.0);
}

TEST_CASE("items: float16 losses do not overflow where their mean does not") {
  Rig rig({.gradient_accumulation_steps = 2}, at::kHalf);
  for (int micro = 0; micro < 2; ++micro) {
    const auto guard = rig.accelerator.accumulate(rig.probe);
    rig.accelerator.backward(rig.probe->w * 60000.0, {.items = 512});  // as 512 items of 117
    rig.finish();
  }
  CHECK(rig.probe->value() == doctest::Approx(-60000.0 / 512).epsilon(2e-3));
}

TEST_CASE("items: given on some ranks or in some micro-batches only is an error on every rank") {
  Rig rig({.gradient_accumulation_steps = 2});
  rig.micro({1.0});
  {
    const auto guard = rig.accelerator.accumulate(rig.probe);
    const auto mixed = [&] { rig.accelerator.backward(rig.probe->sum({1.0}), {.items = 1}); };
    CHECK(contains(error_text<UsageError>(mixed), ".items"));
  }
  rig.accelerator.discard_window(rig.probe);
  if (ranks() == 1) return;
  Rig some;
  {
    const auto guard = some.accelerator.accumulate(some.probe);
    const auto on_some = [&] {
      if (rank() == 0)
        some.accelerator.backward(some.probe->sum({1.0}), {.items = 1});
      else
        some.accelerator.backward(some.probe->loss({1.0}));
    };
    const std::string text = error_text<UsageError>(on_some);
    CHECK(contains(text, "accel[" + std::to_string(rank()) + "/" + std::to_string(ranks()) + "] backward:"));
    CHECK(contains(text, ".items"));
  }
  some.accelerator.discard_window(some.probe);
  CHECK(some.micro({3.0}) == 'S');
  CHECK(some.probe->value() == -3.0);
}

TEST_CASE("case 4: zero_grad before backward does not wipe the window") {
  Rig rig({.gradient_accumulation_steps = 4});
  for (int micro = 0; micro < 8; ++micro) {
    const auto guard = rig.accelerator.accumulate(rig.probe);
    rig.optimizer.zero_grad();
    rig.accelerator.backward(rig.probe->loss({1.0 + rank()}));
    rig.optimizer.step();
    if (micro == 3) CHECK(rig.probe->value() == -mean_over_ranks([](int r) { return 1.0 + r; }));
  }
  // case 116: read literally ("acts at boundaries only"), the second window would lose three micro-batches
  CHECK(rig.probe->value() == -2.0 * mean_over_ranks([](int r) { return 1.0 + r; }));
}

TEST_CASE("case 6: the count restarts with the loader, or windows go on across epochs and the rest is reported") {
  Rig fresh({.gradient_accumulation_steps = 4});
  CHECK(train(fresh, 7, 2) == "...S..S...S..S");
  CHECK(fresh.optimizer.steps() == 4);
  CHECK(fresh.accelerator.pending_micro_batches(fresh.probe) == 0);
  Rig carry({.gradient_accumulation_steps = 4, .sync_with_dataloader = false});
  CHECK(train(carry, 7, 2) == "...S...S...S..");
  CHECK(carry.optimizer.steps() == 3);
  CHECK(carry.accelerator.pending_micro_batches(carry.probe) == 2);
  CHECK(carry.probe->value() == -3.0);
}

TEST_CASE("case 7: a whole evaluation pass inside the training loop does not end the training loader") {
  Rig rig({.gradient_accumulation_steps = 4});
  const auto train_loader = rig.accelerator.prepare(ones_loader(8, ranks()));
  const auto eval_loader = rig.accelerator.prepare(ones_loader(5, ranks()));
  std::string pattern;
  for (auto& batch : train_loader) {
    pattern += rig.micro(batch);
    if (pattern.size() != 2) continue;
    for ([[maybe_unused]] auto& eval : eval_loader) CHECK_FALSE(rig.accelerator.sync_gradients());
    CHECK_FALSE(rig.accelerator.sync_gradients());
  }
  CHECK(pattern == "...S...S");
  CHECK(rig.probe->value() == -2.0);
}

TEST_CASE("case 8: an evaluation loop left by break, also on its last batch, by return or by an exception") {
  for (const char* way : {"break", "break on last", "return", "exception"}) {
    Rig rig({.gradient_accumulation_steps = 4});
    const auto train_loader = rig.accelerator.prepare(ones_loader(7, ranks()));
    const auto eval_loader = rig.accelerator.prepare(ones_loader(5, ranks()));
    const auto evaluate = [&] {
      std::size_t seen = 0;
      for ([[maybe_unused]] auto& batch : eval_loader) {
        ++seen;
        if (way == std::string("break") && seen == 2) break;
        if (way == std::string("break on last") && seen == 5) break;
        if (way == std::string("return") && seen == 5) return;
        if (way == std::string("exception") && seen == 5) throw std::runtime_error("in evaluation");
      }
    };
    std::string pattern;
    for (auto& batch : train_loader) {
      pattern += rig.micro(batch);
      if (pattern.size() != 2) continue;
      try {
        evaluate();
      } catch (const std::runtime_error&) {
      }
    }
    CAPTURE(way);
    CHECK(pattern == "...S..S");  // and the end of the training loader is still seen
    CHECK(rig.probe->value() == -2.0);
  }
}

TEST_CASE("case 9: a loader that accel does not know: one warning, pending micro-batches, finish_window") {
  const CapturedStderr log;
  Rig rig({.gradient_accumulation_steps = 4});
  std::string pattern;
  for (const double x : std::vector<double>(6, 1.0 + rank())) pattern += rig.micro({x});
  CHECK(pattern == "...S..");
  CHECK(rig.optimizer.steps() == 1);
  CHECK(rig.accelerator.pending_micro_batches(rig.probe) == 2);
  const std::string text = log.text();
  CHECK(contains(text, "finish_window"));
  CHECK(text.find("finish_window") == text.rfind("finish_window"));  // once
  rig.accelerator.finish_window(rig.probe);
  CHECK(rig.accelerator.pending_micro_batches(rig.probe) == 0);
  CHECK(rig.finish() == 'S');
  CHECK(rig.optimizer.steps() == 2);
  CHECK(rig.probe->value() == -2.0 * mean_over_ranks([](int r) { return 1.0 + r; }));
}

TEST_CASE("case 9: no warning where the caller says what is last, or windows are one micro-batch long") {
  const CapturedStderr log;
  Rig told({.gradient_accumulation_steps = 4});
  for (int micro = 0; micro < 6; ++micro) told.micro({1.0}, {.last = micro == 5});
  Rig single;
  single.micro({1.0});
  Rig off({.gradient_accumulation_steps = 4, .sync_with_dataloader = false});
  off.micro({1.0});
  CHECK_FALSE(contains(log.text(), "finish_window"));
}

TEST_CASE("case 10: guards around evaluation without backward do not advance the window") {
  Rig rig({.gradient_accumulation_steps = 4});
  std::string pattern;
  for (int micro = 0; micro < 8; ++micro) {
    pattern += rig.micro({1.0}, {.last = false});
    if (micro != 2 && micro != 3) continue;
    for (int eval = 0; eval < 3; ++eval) {
      const auto guard = rig.accelerator.accumulate(rig.probe, {.last = false});
      (void)rig.probe->loss({1.0});
    }
  }
  CHECK(pattern == "...S...S");
  CHECK(rig.probe->value() == -2.0);
}

TEST_CASE("case 17: only one of n micro-batches sends anything, and that exactly the gradients") {
  Rig rig({.gradient_accumulation_steps = 4});
  Traffic traffic(rig.accelerator);
  for (int micro = 0; micro < 8; ++micro) {
    const auto guard = rig.accelerator.accumulate(rig.probe);
    rig.accelerator.backward(rig.probe->loss({1.0 + rank() + micro}));
    const OperationStats since = traffic.take();
    const bool boundary = micro % 4 == 3;
    CHECK(since.bytes == (boundary ? sent(4) : 0));
    CHECK(since.calls == (boundary ? sent(1) : 0));
    if (boundary)
      CHECK(same_on_all_ranks(rig.probe->w.grad()));
    else
      CHECK(differs_between_ranks(rig.probe->w.grad()));
    rig.finish();
  }
  CHECK(same_on_all_ranks(rig.probe->w));
}

TEST_CASE("case 15: sync_each_batch reduces each micro-batch and steps at the boundary only, with the same numbers") {
  for (const bool each : {false, true}) {
    Rig rig({.gradient_accumulation_steps = 2, .sync_each_batch = each});
    Traffic traffic(rig.accelerator);
    CHECK(rig.micro({4.0 * rank() + 2.0}) == '.');
    if (each)
      CHECK(same_on_all_ranks(rig.probe->w.grad()));
    else
      CHECK(differs_between_ranks(rig.probe->w.grad()));
    CHECK(traffic.calls() == (each ? sent(1) : 0));
    CHECK(rig.micro({4.0 * rank() + 4.0}) == 'S');
    CHECK(traffic.calls() == sent(1));
    CHECK(rig.optimizer.steps() == 1);
    CHECK(rig.probe->value() == -(2.0 * ranks() + 1.0));  // two ranks: 5
  }
}

TEST_CASE("case 106: sync_each_batch gives the numbers of one sync a window, at n times the traffic") {
  std::vector<double> w;
  for (const bool each : {false, true}) {
    Rig rig({.gradient_accumulation_steps = 8, .sync_each_batch = each}, at::kDouble);
    Traffic traffic(rig.accelerator);
    for (int micro = 0; micro < 16; ++micro) rig.micro({(rank() + 1.0) * (micro + 1.0) / 7.0});
    CHECK(traffic.bytes() == sent(each ? 16 * 8 : 2 * 8));
    w.push_back(rig.probe->value());
    CHECK(same_on_all_ranks(rig.probe->w));
  }
  CHECK(w[1] == doctest::Approx(w[0]).epsilon(1e-14));
}

TEST_CASE("case 122: the factor of a short window is applied once, also where each micro-batch is reduced") {
  for (const TailPolicy tail : {TailPolicy::kDivideByActual, TailPolicy::kDivideByConfigured})
    for (const bool each : {false, true}) {
      Rig rig({.gradient_accumulation_steps = 4, .tail_policy = tail, .sync_each_batch = each}, at::kDouble);
      const auto loader = rig.accelerator.prepare(ones_loader(7, ranks()));
      for (auto& batch : loader) rig.micro({batch[0] * (1.0 + rank())});
      const double mean = mean_over_ranks([](int r) { return 1.0 + r; });
      const double windows = tail == TailPolicy::kDivideByActual ? 2.0 : 1.75;
      CHECK(rig.probe->value() == doctest::Approx(-windows * mean).epsilon(1e-12));
      CHECK(same_on_all_ranks(rig.probe->w));
    }
}

TEST_CASE("SchedulerUnit::kPerRank steps a schedule once a rank for each optimizer step") {
  for (const SchedulerUnit unit : {SchedulerUnit::kPerOptimizerStep, SchedulerUnit::kPerRank}) {
    Accelerator accelerator({.gradient_accumulation_steps = 4, .scheduler_unit = unit});
    Probe probe;
    torch::optim::SGD sgd(probe->parameters(), 1.0);
    CountingSchedule schedule;
    auto [model, optimizer, scheduler] = accelerator.prepare(probe, sgd, schedule);
    const int each = unit == SchedulerUnit::kPerRank ? ranks() : 1;
    const int expected[10] = {0, 0, 0, 1, 1, 1, 1, 2, 2, 3};
    for (int micro = 0; micro < 10; ++micro) {
      const auto guard = accelerator.accumulate(model, {.last = micro == 9});
      accelerator.backward(model->loss({1.0}));
      optimizer.step();
      scheduler.step();
      optimizer.zero_grad();
      CHECK(schedule.steps == each * expected[micro]);
    }
    CHECK(scheduler.steps() == 3 * each);
  }
}
