// One micro-batch and what may happen in it: several losses, none, exceptions, backward outside, other models.
#include "support/probe.hpp"
#include "support/rank_expect.hpp"
#include "support/torch_doctest.hpp"

#include <accel/error.hpp>

#include <ATen/ops/ones_like.h>

#include <stdexcept>
#include <thread>

using namespace accel;
using namespace accel::test;

TEST_CASE("case 13: a backward after the guard has died is a window's end, and the guard did not count") {
  Rig rig({.gradient_accumulation_steps = 2});
  Traffic traffic(rig.accelerator);
  at::Tensor loss;
  {
    const auto guard = rig.accelerator.accumulate(rig.probe);
    loss = rig.probe->loss({mine()});
  }
  CHECK(rig.accelerator.pending_micro_batches(rig.probe) == 0);
  rig.accelerator.backward(loss);
  CHECK(traffic.take().calls == sent(1));
  CHECK(gradient_of(rig.probe->w) == mean_of_ranks());
  CHECK(rig.finish() == 'S');
  CHECK(rig.probe->value() == -mean_of_ranks());
}

TEST_CASE("case 13: forward before the guard, backward inside: the guard decides") {
  Rig rig({.gradient_accumulation_steps = 2});
  Traffic traffic(rig.accelerator);
  for (int micro = 0; micro < 2; ++micro) {
    const auto loss = rig.probe->loss({mine() + micro});
    const auto guard = rig.accelerator.accumulate(rig.probe);
    rig.accelerator.backward(loss);
    CHECK(traffic.bytes() == (micro == 1 ? sent(4) : 0));
    rig.finish();
  }
  CHECK(rig.probe->value() == -(mean_of_ranks() + 0.5));
}

TEST_CASE("a backward outside any guard closes a window that guards have begun") {
  Rig rig({.gradient_accumulation_steps = 4});
  rig.micro({mine()}, {.last = false});
  rig.accelerator.backward(rig.probe->loss({mine() + 2.0}));
  CHECK(rig.finish() == 'S');
  CHECK(rig.probe->value() == -(mean_of_ranks() + 1.0));
  CHECK(rig.accelerator.pending_micro_batches(rig.probe) == 0);
}

TEST_CASE("case 108: two losses of one model in one micro-batch are one round") {
  for (const bool with_more : {false, true}) {
    Rig rig({.gradient_accumulation_steps = 2});
    Traffic traffic(rig.accelerator);
    CHECK(rig.micro({1.0}) == '.');
    const auto guard = rig.accelerator.accumulate(rig.probe);
    if (with_more) {
      rig.accelerator.backward(rig.probe->loss({1.0}), {.more = true});
      CHECK(traffic.calls() == 0);
      rig.accelerator.backward(rig.probe->loss({1.0}));
    } else {
      rig.accelerator.backward({rig.probe->loss({1.0}), rig.probe->loss({1.0})});
    }
    CHECK(traffic.calls() == sent(1));
    CHECK(gradient_of(rig.probe->w) == 1.5);
    const auto second = [&] { rig.accelerator.backward(rig.probe->loss({1.0})); };
    CHECK(contains(error_text<UsageError>(second), ".more"));
    CHECK(gradient_of(rig.probe->w) == 1.5);
    CHECK(traffic.calls() == 0);
    CHECK(rig.finish() == 'S');
  }
}

TEST_CASE("case 108: .more outside a guard ties losses together as well") {
  Rig rig;
  Traffic traffic(rig.accelerator);
  rig.accelerator.backward(rig.probe->loss({mine()}), {.more = true});
  CHECK(traffic.calls() == 0);
  CHECK(rig.optimizer.step() == Stepped::kNo);
  rig.accelerator.backward(rig.probe->loss({2.0}));
  CHECK(traffic.calls() == sent(1));
  CHECK(rig.finish() == 'S');
  CHECK(rig.probe->value() == -(mean_of_ranks() + 2.0));
}

TEST_CASE("case 108: a non-sync micro-batch may have several backward calls and is one micro-batch") {
  Rig rig({.gradient_accumulation_steps = 2});
  {
    const auto guard = rig.accelerator.accumulate(rig.probe);
    rig.accelerator.backward(rig.probe->loss({1.0}));
    rig.accelerator.backward(rig.probe->loss({2.0}));
  }
  CHECK(rig.accelerator.pending_micro_batches(rig.probe) == 1);
  CHECK(rig.micro({3.0}) == 'S');
  CHECK(rig.probe->value() == -3.0);
}

TEST_CASE("skip on some ranks: they keep step, and the divisor counts what was really held") {
  for (const int n : {1, 2, 3}) {
    Rig rig({.gradient_accumulation_steps = n}, at::kDouble);
    double sum = 0.0;
    int held = 0;
    std::string pattern;
    for (int micro = 0; micro < n; ++micro) {
      const auto skips = [micro](int r) { return (r + micro) % 2 == 1; };
      const auto guard = rig.accelerator.accumulate(rig.probe);
      if (skips(rank()))
        guard.skip();
      else
        rig.accelerator.backward(rig.probe->loss({mine() + micro}));
      for (int r = 0; r < ranks(); ++r)
        if (!skips(r)) {
          sum += one_more(r) + micro;
          ++held;
        }
      pattern += rig.finish();
    }
    CHECK(pattern == std::string(static_cast<std::size_t>(n - 1), '.') + 'S');
    CHECK(rig.probe->value() == doctest::Approx(-sum / held).epsilon(1e-12));
    CHECK(same_on_all_ranks(rig.probe->w));
  }
}

TEST_CASE("skip on all ranks in the whole window: no gradient, no step, and the next window is exact") {
  Rig rig({.gradient_accumulation_steps = 2});
  for (int micro = 0; micro < 2; ++micro) {
    const auto guard = rig.accelerator.accumulate(rig.probe);
    guard.skip();
    guard.skip();  // again: nothing more
    CHECK(rig.finish() == '.');
  }
  CHECK(rig.accelerator.pending_micro_batches(rig.probe) == 0);
  CHECK_FALSE(rig.probe->w.grad().defined());
  CHECK(rig.micro({mine()}) == '.');
  CHECK(rig.micro({mine()}) == 'S');
  CHECK(rig.probe->value() == -mean_of_ranks());
}

TEST_CASE("a micro-batch has either a backward or a skip") {
  Rig rig({.gradient_accumulation_steps = 2});
  {
    const auto guard = rig.accelerator.accumulate(rig.probe);
    rig.accelerator.backward(rig.probe->loss({1.0}));
    CHECK(contains(error_text<UsageError>([&] { guard.skip(); }), "skip"));
  }
  {
    const auto guard = rig.accelerator.accumulate(rig.probe);
    guard.skip();
    CHECK_THROWS_AS(rig.accelerator.backward(rig.probe->loss({1.0})), UsageError);
  }
  CHECK(rig.finish() == 'S');
  CHECK(rig.probe->value() == -1.0);
}

TEST_CASE("an exception in forward leaves a micro-batch that never was") {
  Rig rig({.gradient_accumulation_steps = 2});
  std::string pattern;
  for (int micro = 0; micro < 6; ++micro) {
    try {
      const auto guard = rig.accelerator.accumulate(rig.probe);
      if (micro % 3 == 1) throw std::runtime_error("in forward");
      rig.accelerator.backward(rig.probe->loss({mine() + micro}));
      pattern += rig.finish();
    } catch (const std::runtime_error&) {
      pattern += 'x';
    }
  }
  CHECK(pattern == ".xS.xS");
  // Windows {0, 2} and {3, 5}.
  CHECK(rig.probe->value() == -(2.0 * mean_of_ranks() + 1.0 + 4.0));
}

TEST_CASE("an exception after backward does not undo the micro-batch") {
  Rig rig({.gradient_accumulation_steps = 2});
  for (int micro = 0; micro < 2; ++micro) {
    try {
      const auto guard = rig.accelerator.accumulate(rig.probe);
      rig.accelerator.backward(rig.probe->loss({mine() + micro}));
      throw std::runtime_error("before step");
    } catch (const std::runtime_error&) {
    }
  }
  CHECK(rig.finish() == 'S');
  CHECK(rig.probe->value() == -(mean_of_ranks() + 0.5));
}

TEST_CASE("no_sync keeps micro-batches in the window, also those that would have closed it") {
  Rig rig;
  Traffic traffic(rig.accelerator);
  {
    const auto quiet = rig.accelerator.no_sync(rig.probe);
    for (int micro = 0; micro < 2; ++micro) {
      const auto guard = rig.accelerator.accumulate(rig.probe);
      rig.accelerator.backward(rig.probe->loss({mine() + micro}));
      CHECK(rig.finish() == '.');
      CHECK(differs_between_ranks(rig.probe->w.grad()));
    }
  }
  CHECK(traffic.take().bytes == 0);
  CHECK(rig.accelerator.pending_micro_batches(rig.probe) == 2);
  CHECK(rig.micro({mine() + 2.0}) == 'S');
  CHECK(traffic.bytes() == sent(4));
  CHECK(rig.probe->value() == doctest::Approx(-(mean_of_ranks() + 1.0)).epsilon(1e-6));
}

TEST_CASE("no_sync around backward calls without guards") {
  Rig rig({.gradient_accumulation_steps = 3});
  Traffic traffic(rig.accelerator);
  for (int micro = 0; micro < 3; ++micro) {
    const auto backward = [&] { rig.accelerator.backward(rig.probe->loss({mine() + micro})); };
    if (micro < 2) {
      const auto guard = rig.accelerator.no_sync(rig.probe);
      backward();
      CHECK(traffic.bytes() == 0);
    } else {
      backward();
      CHECK(traffic.bytes() == sent(4));
    }
  }
  CHECK(rig.finish() == 'S');
  CHECK(rig.probe->value() == doctest::Approx(-(mean_of_ranks() + 1.0)).epsilon(1e-6));
}

TEST_CASE("finish_window closes what is there; with nothing it does nothing; with an open guard it is refused") {
  Rig rig({.gradient_accumulation_steps = 4});
  Traffic traffic(rig.accelerator);
  rig.accelerator.finish_window(rig.probe);
  CHECK(rig.finish() == '.');
  CHECK_FALSE(rig.probe->w.grad().defined());
  // Rank r holds a gradient only if it is even.
  {
    const auto guard = rig.accelerator.accumulate(rig.probe);
    if (rank() % 2 == 0)
      rig.accelerator.backward(rig.probe->loss({mine()}));
    else
      guard.skip();
    CHECK_THROWS_AS(rig.accelerator.finish_window(rig.probe), UsageError);
  }
  traffic.take();
  rig.accelerator.finish_window(rig.probe);
  CHECK(traffic.bytes() == sent(4));
  CHECK(rig.finish() == 'S');
  double sum = 0.0;
  int held = 0;
  for (int r = 0; r < ranks(); r += 2) {
    sum += one_more(r);
    ++held;
  }
  CHECK(rig.probe->value() == doctest::Approx(-sum / held).epsilon(1e-6));
}

TEST_CASE("discard_window throws the window away, and the next one is exact") {
  Rig rig({.gradient_accumulation_steps = 3});
  Traffic traffic(rig.accelerator);
  rig.micro({100.0});
  rig.micro({100.0});
  rig.accelerator.discard_window(rig.probe);
  CHECK(rig.accelerator.pending_micro_batches(rig.probe) == 0);
  CHECK_FALSE(rig.probe->w.grad().defined());
  CHECK(traffic.bytes() == 0);
  std::string pattern;
  for (int micro = 0; micro < 3; ++micro) pattern += rig.micro({mine()});
  CHECK(pattern == "..S");
  CHECK(rig.probe->value() == doctest::Approx(-mean_of_ranks()).epsilon(1e-6));
}

TEST_CASE("sync reduces gradients made by hand and closes the window") {
  for (const int n : {1, 4}) {
    Rig rig({.gradient_accumulation_steps = n});
    Traffic traffic(rig.accelerator);
    for (int step = 1; step <= 2; ++step) {
      rig.probe->w.mutable_grad() = at::full({}, mine() * step, at::kFloat);
      rig.accelerator.sync(rig.probe);
      CHECK(traffic.bytes() == sent(4));
      CHECK(gradient_of(rig.probe->w) == mean_of_ranks() * step);
      CHECK(same_on_all_ranks(rig.probe->w.grad()));
      CHECK(rig.finish() == 'S');
      CHECK(rig.probe->value() == -mean_of_ranks() * (step == 1 ? 1.0 : 3.0));
    }
  }
}

TEST_CASE("sync where only some ranks have a gradient") {
  Rig rig;
  if (rank() == 0) rig.probe->w.mutable_grad() = at::full({}, 8.0, at::kFloat);
  rig.accelerator.sync(rig.probe);
  CHECK(gradient_of(rig.probe->w) == 8.0 / ranks());
  CHECK(rig.finish() == 'S');
}

TEST_CASE("sync of gradients from plain backward calls in several threads") {
  Rig rig;
  for (int window = 0; window < 2; ++window) {
    std::vector<std::thread> threads;
    for (int each = 1; each <= 4; ++each)
      threads.emplace_back([&rig, each] { rig.probe->loss({mine() * each}).backward(); });
    for (auto& thread : threads) thread.join();
    rig.accelerator.sync(rig.probe);
    CHECK(gradient_of(rig.probe->w) == 10.0 * mean_of_ranks());
    CHECK(rig.finish() == 'S');
  }
  CHECK(rig.probe->value() == -20.0 * mean_of_ranks());
}

TEST_CASE("case 117: gradients cleared inside an open window are noticed at the next guard, by name") {
  for (const bool to_none : {true, false}) {
    Rig rig({.gradient_accumulation_steps = 4});
    rig.micro({1.0});
    rig.micro({1.0});
    rig.probe->zero_grad(to_none);
    const std::string text = error_text<UsageError>([&] { (void)rig.accelerator.accumulate(rig.probe); });
    CHECK(contains(text, "accumulate: expected"));
    CHECK(contains(text, "'w'"));
    CHECK(contains(text, "discard_window"));
    rig.accelerator.discard_window(rig.probe);
    for (int micro = 0; micro < 4; ++micro) rig.micro({mine()});
    CHECK(rig.probe->value() == -mean_of_ranks());
  }
}

TEST_CASE("case 117: gradients that are zero by themselves were not cleared") {
  Rig rig({.gradient_accumulation_steps = 3});
  std::string pattern;
  for (const double x : {2.0, -2.0, 3.0}) pattern += rig.micro({x});
  CHECK(pattern == "..S");
  CHECK(rig.probe->value() == doctest::Approx(-1.0).epsilon(1e-6));
}

TEST_CASE("accelerator.zero_grad clears only between windows") {
  Rig rig({.gradient_accumulation_steps = 2});
  rig.micro({2.0});
  rig.accelerator.zero_grad(rig.probe);
  CHECK(gradient_of(rig.probe->w) == 1.0);
  rig.accelerator.discard_window(rig.probe);
  rig.accelerator.backward(rig.probe->loss({2.0}));
  rig.accelerator.zero_grad(rig.probe);
  CHECK_FALSE(rig.probe->w.grad().defined());
}

TEST_CASE("case 118: a plain backward is refused at the boundary on every rank, and parameters stay as they are") {
  for (const int n : {1, 2}) {
    if (ranks() == 1 && n == 1) continue;  // one rank and no accumulation: what plain backward left is right
    Rig rig({.gradient_accumulation_steps = n});
    for (int micro = 1; micro < n; ++micro) rig.micro({mine()});
    {
      const auto guard = rig.accelerator.accumulate(rig.probe);
      rig.probe->loss({mine()}).backward();
      const std::string text = error_text<UsageError>([&] { rig.optimizer.step(); });
      CHECK(contains(text, "optimizer.step: expected"));
      CHECK(contains(text, "accelerator.backward"));
    }
    CHECK(rig.probe->value() == 0.0);
    CHECK(same_on_all_ranks(rig.probe->w));
  }
}

TEST_CASE("case 118: a plain backward outside any guard, and one beside a real one, are refused") {
  if (ranks() == 1) return;
  Rig outside;
  outside.probe->loss({mine()}).backward();
  CHECK(contains(error_text<UsageError>([&] { outside.optimizer.step(); }), "'w'"));
  CHECK(outside.probe->value() == 0.0);
  Rig beside;
  const auto guard = beside.accelerator.accumulate(beside.probe);
  beside.accelerator.backward(beside.probe->loss({mine()}));
  beside.probe->loss({mine()}).backward();
  CHECK(contains(error_text<UsageError>([&] { beside.optimizer.step(); }), "'w'"));
  CHECK(beside.probe->value() == 0.0);
}

TEST_CASE("case 118: a parameter in no prepared model is refused at several ranks") {
  Accelerator accelerator;
  Probe prepared;
  Probe forgotten;
  torch::optim::SGD sgd({prepared->w, forgotten->w}, 1.0);
  auto [model, optimizer] = accelerator.prepare(prepared, sgd);
  const auto guard = accelerator.accumulate(model);
  accelerator.backward(prepared->loss({mine()}) + forgotten->loss({mine()}));
  if (ranks() == 1) {
    CHECK(optimizer.step() == Stepped::kYes);
    return;
  }
  CHECK(contains(error_text<UsageError>([&, &o = optimizer] { o.step(); }), "prepare"));
  CHECK(prepared->value() == 0.0);
  CHECK(forgotten->value() == 0.0);
}

TEST_CASE(".gradient, retain_graph and create_graph pass through") {
  Rig rig({.gradient_accumulation_steps = 2}, at::kDouble);
  {
    const auto guard = rig.accelerator.accumulate(rig.probe);
    const at::Tensor products = rig.probe->products({1.0, 2.0, mine()});
    rig.accelerator.backward(products, {.gradient = at::ones_like(products)});
  }
  {
    const auto guard = rig.accelerator.accumulate(rig.probe);
    const at::Tensor loss = rig.probe->loss({mine()});
    rig.accelerator.backward(loss, {.more = true, .retain_graph = true});
    rig.accelerator.backward(loss);
    rig.finish();
  }
  CHECK(rig.probe->value() == -(3.0 + mean_of_ranks() + 2.0 * mean_of_ranks()) / 2.0);
  rig.probe->w.data().fill_(2.0);
  {
    const auto guard = rig.accelerator.accumulate(rig.probe, {.last = true});
    const at::Tensor cubed = rig.probe->w.pow(3) * mine();  // gradient 3 w^2 x = 12 x
    rig.accelerator.backward(cubed, {.create_graph = true});
  }
  CHECK(gradient_of(rig.probe->w) == 12.0 * mean_of_ranks());
  CHECK(same_on_all_ranks(rig.probe->w.grad()));
  CHECK(rig.finish() == 'S');
}

TEST_CASE("create_graph on a micro-batch that does not sync leaves a gradient with a graph, and the sum is exact") {
  Rig rig({.gradient_accumulation_steps = 3}, at::kDouble);
  rig.probe->w.data().fill_(2.0);
  for (int micro = 0; micro < 3; ++micro) {
    const auto guard = rig.accelerator.accumulate(rig.probe);
    rig.accelerator.backward(rig.probe->w.pow(2) * mine(), {.create_graph = micro == 1});
    if (micro == 1) CHECK(rig.probe->w.grad().requires_grad());
    rig.finish();
  }
  CHECK(rig.probe->value() == doctest::Approx(2.0 - 4.0 * mean_of_ranks()).epsilon(1e-12));
}

TEST_CASE("finish_window after a window that closed sends nothing and leaves the gradient to the optimizer") {
  Rig rig;
  {
    const auto micro = rig.accelerator.accumulate(rig.probe);
    rig.accelerator.backward(rig.probe->loss({3.0}));
  }
  Traffic traffic(rig.accelerator);
  rig.accelerator.finish_window(rig.probe);
  CHECK(traffic.bytes() == 0);
  CHECK(rig.finish() == 'S');
  CHECK(rig.probe->value() == -3.0);
}

TEST_CASE("a reduced gradient that is discarded is not stepped with") {
  Rig rig;
  {
    const auto micro = rig.accelerator.accumulate(rig.probe);
    rig.accelerator.backward(rig.probe->loss({3.0}));
  }
  rig.accelerator.discard_window(rig.probe);
  CHECK(rig.finish() == '.');
  CHECK(rig.micro({2.0}) == 'S');
  CHECK(rig.probe->value() == -2.0);
}

TEST_CASE("sync inside a guard that does not close ends the window, and the optimizer steps") {
  Rig rig({.gradient_accumulation_steps = 4});
  for (int turn = 0; turn < 2; ++turn) {
    const auto micro = rig.accelerator.accumulate(rig.probe);
    rig.probe->loss({1.0}).backward();
    rig.accelerator.sync(rig.probe);
    CHECK(rig.finish() == 'S');
  }
  CHECK(rig.probe->value() == -2.0);
}

TEST_CASE("objects that come to the address of earlier ones are not taken for them") {
  Accelerator accelerator;
  for (int fold = 0; fold < 3; ++fold) {
    ProbeImpl probe(rank() == 0 ? 0.0 : 5.0);
    torch::optim::SGD sgd(probe.parameters(), 1.0);
    auto [model, optimizer] = accelerator.prepare(probe, sgd);
    int called = 0;
    accelerator.on_step(optimizer, [&called] { ++called; });
    CHECK(model.value() == 0.0);  // of rank 0, in every fold
    CHECK(optimizer.step() == Stepped::kNo);
    {
      const auto micro = accelerator.accumulate(model);
      accelerator.backward(model.loss({2.0}));
      CHECK(optimizer.step() == Stepped::kYes);
    }
    CHECK(model.value() == -2.0);
    CHECK(optimizer.steps() == 1);
    CHECK(called == 1);
  }
}

TEST_CASE("a short window without any gradient is no error") {
  Rig rig({.gradient_accumulation_steps = 4});
  Scalars other(1);
  auto model = rig.accelerator.prepare(other);
  {
    const auto micro = rig.accelerator.accumulate(model, {.last = true});
    rig.accelerator.backward(rig.probe->loss({1.0}) + 0.0 * rig.probe->w, {.inputs = {model, rig.probe}});
  }
  CHECK(!other->p[0].grad().defined());
}
