// Random walks through everything that can happen to a window, the same on all ranks, against an oracle that only adds
// numbers up. Which ranks skip and what they see differs by rank, so the oracle works out the other ranks' part itself.
#include "support/probe.hpp"
#include "support/rank_expect.hpp"
#include "support/torch_doctest.hpp"

#include <accel/error.hpp>

#include <random>
#include <stdexcept>

using namespace accel;
using namespace accel::test;

namespace {

struct Walk {
  Walk(unsigned seed, bool each, TailPolicy policy)
      : random(seed),
        n(1 + up_to(4)),
        tail(policy),
        rig({.gradient_accumulation_steps = n, .tail_policy = policy, .sync_each_batch = each}, at::kDouble) {}

  int up_to(int limit) { return static_cast<int>(random() % static_cast<unsigned>(limit + 1)); }

  // What rank r sees in the micro-batch at hand; all numbers differ.
  [[nodiscard]] double x_of(int r) const { return (r + 1.0) * (1.0 + 0.37 * (micro % 11)) - 4.0 * (micro % 3); }
  [[nodiscard]] double mine() const { return x_of(rank()); }

  void hold(int losses, std::uint32_t skipping = 0) {
    for (int r = 0; r < ranks(); ++r) {
      if ((skipping >> r & 1U) != 0) continue;
      sum += losses * x_of(r);
      ++held;
    }
  }
  void close_or_advance(bool last) {
    const bool closes = last || position + 1 >= n;
    if (closes)
      close();
    else
      ++position;
  }
  void close() {
    if (held > 0) {
      w -= sum / (tail == TailPolicy::kDivideByActual ? held : n * ranks());
      ++steps;
    }
    discard();
  }
  void discard() {
    position = held = 0;
    sum = 0.0;
  }

  void step();
  void micro_batch(int kind, bool last);

  std::mt19937 random;
  int n;
  TailPolicy tail;
  Rig rig;
  std::string history = {};
  int micro = 0;
  double w = 0.0;
  int steps = 0;
  int position = 0;
  int held = 0;
  double sum = 0.0;
};

// Kinds: 0 plain, 1 skip on some ranks, 2 no backward, 3 exception before backward, 4 exception after it, 5 two losses,
// 6 two losses in two calls.
void Walk::micro_batch(int kind, bool last) {
  Accelerator& accelerator = rig.accelerator;
  Probe& probe = rig.probe;
  const auto skipping = static_cast<std::uint32_t>(kind == 1 ? random() & 0xFU : 0U);
  const bool early_zero = up_to(1) == 1;
  try {
    const auto guard = accelerator.accumulate(probe, {.last = last});
    CHECK(guard.closes_window() == (last || position + 1 >= n));
    if (early_zero) rig.optimizer.zero_grad();
    if (kind == 2) return;
    if (kind == 3) throw std::runtime_error("before backward");
    if ((skipping >> rank() & 1U) != 0) {
      guard.skip();
    } else if (kind == 5) {
      accelerator.backward({probe->loss({mine()}), probe->loss({mine()})});
    } else if (kind == 6) {
      accelerator.backward(probe->loss({mine()}), {.more = true});
      accelerator.backward(probe->loss({mine()}));
    } else {
      accelerator.backward(probe->loss({mine()}));
    }
    hold(kind >= 5 ? 2 : 1, skipping);
    close_or_advance(last);
    if (kind == 4) throw std::runtime_error("after backward");
    if (up_to(1) == 1) rig.optimizer.step();
  } catch (const std::runtime_error& error) {
    CHECK((kind == 3 || kind == 4));
    CHECK(contains(error.what(), "backward"));
  }
}

void Walk::step() {
  ++micro;
  const int action = up_to(15);
  history += static_cast<char>('a' + action);
  const bool last = up_to(5) == 0;
  if (action <= 11) {
    micro_batch(action <= 5 ? 0 : action - 5, last);
  } else if (action == 12) {
    if (held > 0 || position == 0) {
      rig.accelerator.finish_window(rig.probe);
      close();
    }
  } else if (action == 13) {
    // Between windows there is nothing to discard but the gradient that the optimizer has stepped with already.
    if (position > 0 || held > 0) {
      rig.accelerator.discard_window(rig.probe);
      discard();
    }
  } else if (action == 14) {
    if (tail == TailPolicy::kDivideByActual || position == 0) {
      n = 1 + up_to(4);
      rig.accelerator.set_gradient_accumulation_steps(n);
    }
  } else {
    rig.accelerator.backward(rig.probe->loss({mine()}));  // outside any guard: a micro-batch that closes
    hold(1);
    close();
  }
  rig.optimizer.step();
  if (up_to(1) == 1 || position == 0) rig.optimizer.zero_grad();
}

void check_walk(unsigned seed, bool each, TailPolicy tail) {
  Walk walk(seed, each, tail);
  for (int each_step = 0; each_step < 40; ++each_step) {
    walk.step();
    CAPTURE(seed);
    CAPTURE(walk.history);
    REQUIRE(walk.rig.probe->value() == doctest::Approx(walk.w).epsilon(1e-10));
    REQUIRE(walk.rig.optimizer.steps() == walk.steps);
    REQUIRE(walk.rig.accelerator.pending_micro_batches(walk.rig.probe) == walk.position);
  }
  CHECK(same_on_all_ranks(walk.rig.probe->w));
}

}  // namespace

TEST_CASE("a hundred random walks agree with an oracle that adds numbers up") {
  for (unsigned seed = 1; seed <= 50; ++seed) {
    check_walk(seed, false, TailPolicy::kDivideByActual);
    check_walk(seed + 1000, false, TailPolicy::kDivideByConfigured);
  }
}

TEST_CASE("random walks that reduce at every micro-batch agree with the same oracle") {
  for (unsigned seed = 1; seed <= 25; ++seed) {
    check_walk(seed, true, TailPolicy::kDivideByActual);
    check_walk(seed + 1000, true, TailPolicy::kDivideByConfigured);
  }
}
