// Ranks with different numbers of batches under join_uneven_inputs.

#include <accel/accelerator.hpp>
#include <accel/error.hpp>

#include "support/probe.hpp"
#include "support/rank_expect.hpp"
#include "support/torch_doctest.hpp"

#include <torch/optim/adam.h>
#include <torch/optim/schedulers/step_lr.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

using accel::Accelerator;
using accel::test::contains;
using accel::test::error_text;
using accel::test::gradient_of;
using accel::test::rank;
using accel::test::ranks;
using accel::test::Rig;
using accel::test::same_on_all_ranks;
using accel::test::Traffic;

namespace {

using Batches = std::vector<std::vector<double>>;

/// `count` batches of this rank, each of one sample.
auto own_loader(Rig& rig, std::size_t count, double x) {
  return rig.accelerator.prepare_loader(Batches(count, {x}), {.already_sharded = true});
}

template <class Loader>
std::string train(Rig& rig, const Loader& loader) {
  std::string pattern;
  for (auto& batch : loader) pattern += rig.micro(batch);
  return pattern;
}

/// Samples that are all one, for 4 x ranks + 1 batches of two: rank 0 has one batch more than the others.
auto one_more_on_rank_0() {
  const std::size_t batches = 4 * static_cast<std::size_t>(ranks()) + 1;
  return accel::make_data_loader(accel::test::Values{std::vector<double>(2 * batches - 1, 1.0)},
                                 {.batch_size = 2, .even_batches = false});
}

}  // namespace

TEST_CASE("case 37, case 39: ranks that run out take part with nothing, divided by the micro-batches held") {
  Rig rig;
  const auto loader = rig.accelerator.prepare(one_more_on_rank_0());
  const auto join = rig.accelerator.join_uneven_inputs();
  Traffic traffic(rig.accelerator);
  const std::string pattern = train(rig, loader);
  CHECK(pattern.size() == (rank() == 0 ? 5 : 4));
  CHECK(pattern == std::string(pattern.size(), 'S'));
  // The fifth gradient is 1 / 1, of rank 0 alone.
  CHECK(rig.probe->value() == -5.0);
  CHECK(rig.optimizer.steps() == 5);
  CHECK(traffic.bytes() == accel::test::sent(5 * sizeof(float)));  // of those that have run out too
  CHECK(join.last_active_rank() == 0);
}

TEST_CASE("case 37, case 39: the divisor may count all ranks") {
  Rig rig;
  const auto loader = rig.accelerator.prepare(one_more_on_rank_0());
  const auto join = rig.accelerator.join_uneven_inputs({.divide_by_initial_world_size = true});
  (void)train(rig, loader);
  CHECK(rig.probe->value() == doctest::Approx(-4.0 - 1.0 / ranks()).epsilon(1e-6));
  CHECK(same_on_all_ranks(rig.probe->w));
}

TEST_CASE("the guard turns even_batches off where it is told to") {
  Rig rig;
  const std::size_t samples = 4 * static_cast<std::size_t>(ranks()) + 1;
  const auto loader = rig.accelerator.prepare(accel::make_data_loader(
      accel::test::Values{std::vector<double>(samples, 1.0)}, {.batch_size = 1, .even_batches = true}));
  {
    const auto join = rig.accelerator.join_uneven_inputs({.even_batches = false});
    CHECK(train(rig, loader).size() == (rank() == 0 ? 5 : 4));
  }
  CHECK(train(rig, loader).size() == 5);  // completed with repeats, as without the guard
  CHECK(rig.probe->value() == -10.0);
}

// Rank 0 has windows of 4, 4 and 2, the others of 4 and 2: the second is worth what it holds.
TEST_CASE("a rank that runs out in the middle of a window sends what it holds") {
  Rig rig({.gradient_accumulation_steps = 4});
  const auto loader = own_loader(rig, rank() == 0 ? 10 : 6, rank() == 0 ? 1.0 : 2.0);
  const auto join = rig.accelerator.join_uneven_inputs();
  Traffic traffic(rig.accelerator);
  int index = 0;
  for (auto& batch : loader) {
    const auto micro = rig.accelerator.accumulate(rig.probe);
    rig.accelerator.backward(rig.probe->loss(batch));
    CHECK(micro.closes_window() == (++index % 4 == 0 || index == (rank() == 0 ? 10 : 6)));
    if (!micro.syncs()) {
      CHECK(traffic.bytes() == 0);
      // Not reduced: that of this rank alone.
      CHECK(gradient_of(rig.probe->w) == (index % 4) * (rank() == 0 ? 1.0 : 2.0) / 4);
    } else {
      CHECK(traffic.bytes() == accel::test::sent(sizeof(float)));
    }
    rig.optimizer.step();
    rig.optimizer.zero_grad();
  }
  const double others = ranks() - 1.0;
  const double first = (4 + 8 * others) / (4 + 4 * others);
  const double second = (4 + 4 * others) / (4 + 2 * others);
  CHECK(rig.probe->value() == doctest::Approx(-(first + second + 1.0)).epsilon(1e-6));
  CHECK(same_on_all_ranks(rig.probe->w));
  CHECK(rig.optimizer.steps() == 3);
  CHECK(rig.accelerator.pending_micro_batches(rig.probe) == 0);
}

TEST_CASE("windows that carry over loops: a rank that has run out still sends what it holds") {
  Rig rig({.gradient_accumulation_steps = 4, .sync_with_dataloader = false});
  const auto loader = own_loader(rig, rank() == 0 ? 8 : 6, 1.0);
  const auto join = rig.accelerator.join_uneven_inputs();
  (void)train(rig, loader);
  CHECK(rig.optimizer.steps() == 2);
  CHECK(rig.probe->value() == -2.0);
  CHECK(rig.accelerator.pending_micro_batches(rig.probe) == 0);
}

TEST_CASE("a rank without any batch takes part from the first round on") {
  Rig rig;
  const auto loader = own_loader(rig, rank() == ranks() - 1 ? 3 : 0, 2.0);
  const auto join = rig.accelerator.join_uneven_inputs();
  CHECK(train(rig, loader) == (rank() == ranks() - 1 ? "SSS" : ""));
  CHECK(rig.probe->value() == -6.0);
  CHECK(join.last_active_rank() == ranks() - 1);
}

TEST_CASE("optimizer, scheduler and buffers of all ranks are those of the rank that was active to the end") {
  Accelerator accelerator;
  accel::test::Probe probe;
  at::Tensor seen = probe->register_buffer("seen", at::full({}, 0.0));
  torch::optim::Adam adam(probe->parameters(), torch::optim::AdamOptions(0.1));
  torch::optim::StepLR schedule(adam, 2, 0.5);
  auto [model, optimizer, scheduler] = accelerator.prepare(probe, adam, schedule);
  const auto epoch = [&, &step = optimizer, &lr = scheduler](const auto& loader) {
    for (auto& batch : loader) {
      const auto micro = accelerator.accumulate(probe);
      accelerator.backward(probe->loss(batch) * (1.0 + probe->value()));
      step.step();
      lr.step();
      step.zero_grad();
      seen.add_(1.0);
    }
  };
  const auto count = static_cast<std::size_t>(2 + 3 * (rank() == 0));
  const auto loader = accelerator.prepare_loader(Batches(count, {1.0 + rank()}), {.already_sharded = true});
  {
    const auto join = accelerator.join_uneven_inputs();
    epoch(loader);
  }
  CHECK(optimizer.steps() == 5);
  CHECK(scheduler.steps() == 5);
  CHECK(adam.param_groups()[0].options().get_lr() == doctest::Approx(0.1 * 0.25));
  CHECK(seen.item<double>() == 5.0);
  const auto& state = static_cast<torch::optim::AdamParamState&>(*adam.state().at(probe->w.unsafeGetTensorImpl()));
  CHECK(state.step() == 5);
  CHECK(same_on_all_ranks(state.exp_avg()));
  CHECK(same_on_all_ranks(state.exp_avg_sq()));
  CHECK(same_on_all_ranks(probe->w));
  // And so they go on together, without a guard.
  epoch(accelerator.prepare_loader(Batches(2, {1.0 + rank()}), {.already_sharded = true}));
  CHECK(same_on_all_ranks(probe->w));
  CHECK(same_on_all_ranks(
      static_cast<torch::optim::AdamParamState&>(*adam.state().at(probe->w.unsafeGetTensorImpl())).exp_avg()));
  CHECK(adam.param_groups()[0].options().get_lr() == doctest::Approx(0.1 * 0.125));
}

TEST_CASE("two models in rounds of their own: those that have run out follow what the others reduce") {
  Accelerator accelerator;
  accel::test::Probe a;
  accel::test::Probe b;
  torch::optim::SGD sgd_a(a->parameters(), 1.0);
  torch::optim::SGD sgd_b(b->parameters(), 1.0);
  auto optimizer_a = accelerator.prepare(a, sgd_a);
  auto optimizer_b = accelerator.prepare(b, sgd_b);
  const std::size_t count = rank() == 0 ? 4 : 1;
  const auto loader = accelerator.prepare_loader(Batches(count, {1.0}), {.already_sharded = true});
  const auto join = accelerator.join_uneven_inputs();
  int index = 0;
  for (auto& batch : loader) {
    const auto micro = accelerator.accumulate(a, b);
    accelerator.backward(a->loss(batch), {.inputs = {a}});
    if (index++ % 2 == 0) accelerator.backward(b->loss(batch) * 2, {.inputs = {b}});
    std::get<1>(optimizer_a).step();
    std::get<1>(optimizer_b).step();
    std::get<1>(optimizer_a).zero_grad();
    std::get<1>(optimizer_b).zero_grad();
  }
  CHECK(a->value() == -4.0);
  CHECK(b->value() == -4.0);
}

TEST_CASE("case 38: a rank that leaves a micro-batch out holds nobody up, and nothing is weighed wrongly") {
  Rig rig({.gradient_accumulation_steps = 4});
  const auto loader = own_loader(rig, 4, rank() == 0 ? 1.0 : 2.0);
  int index = 0;
  for (auto& batch : loader) {
    if (++index == 3 && rank() == 1) continue;
    (void)rig.micro(batch);
  }
  const double others = ranks() - 1.0;
  const double held = 4.0 + 4 * others - (ranks() > 1 ? 1 : 0);
  CHECK(rig.probe->value() == doctest::Approx(-(4 + 8 * others - (ranks() > 1 ? 2 : 0)) / held).epsilon(1e-6));

  // Without accumulation it would be a round less; under the guard the rank is missed in the last one instead.
  Rig each;
  const auto join = each.accelerator.join_uneven_inputs();
  index = 0;
  for (auto& batch : own_loader(each, 4, 1.0)) {
    if (++index == 3 && rank() == 1) continue;
    (void)each.micro(batch);
  }
  CHECK(each.probe->value() == -4.0);
  CHECK(each.optimizer.steps() == 4);
}

TEST_CASE("a backward that cannot begin on an active rank ends nothing for those that have run out") {
  Rig rig;
  const auto loader = own_loader(rig, rank() == 0 ? 3 : 1, 1.0);
  const auto join = rig.accelerator.join_uneven_inputs();
  int index = 0;
  for (auto& batch : loader) {
    if (++index == 2) {
      const auto micro = rig.accelerator.accumulate(rig.probe);
      const at::Tensor detached = rig.probe->loss(batch).detach();
      CHECK_THROWS_AS(rig.accelerator.backward(detached), accel::UsageError);
      continue;
    }
    (void)rig.micro(batch);
  }
  CHECK(rig.probe->value() == -2.0);
  CHECK(rig.optimizer.steps() == 2);
}

TEST_CASE("where no rank runs out early, the guard costs one exchange at the end of the loop") {
  const auto exchanges = [](bool guarded) {
    Rig rig;
    const auto loader = own_loader(rig, 3, 1.0);
    const accel::CommStats before = rig.accelerator.comm_stats();
    if (guarded) {
      const auto join = rig.accelerator.join_uneven_inputs();
      (void)train(rig, loader);
    } else {
      (void)train(rig, loader);
    }
    const accel::CommStats sent = rig.accelerator.comm_stats() - before;
    CHECK(sent.of(accel::Purpose::kBuffer).calls == 0);
    CHECK(rig.probe->value() == -3.0);
    return sent.of(accel::Operation::kAllGather, accel::Purpose::kControl).calls;
  };
  CHECK(exchanges(true) == exchanges(false) + accel::test::sent(1));
}

TEST_CASE("other collective calls in the loop are refused, after it they are not") {
  Rig rig;
  const auto join = rig.accelerator.join_uneven_inputs();
  for (auto& batch : own_loader(rig, 2, 1.0)) {
    CHECK(contains(error_text<accel::UsageError>([&] { (void)rig.accelerator.any(true); }),
                   "any: expected no collective call in a loop under join_uneven_inputs"));
    CHECK_THROWS_AS((void)rig.accelerator.mean(1.0), accel::UsageError);
    CHECK_THROWS_AS((void)rig.accelerator.gather(at::full({1}, 1.0)), accel::UsageError);
    CHECK_THROWS_AS(rig.accelerator.wait_for_everyone(), accel::UsageError);
    CHECK_THROWS_AS(rig.accelerator.refresh(rig.probe), accel::UsageError);
    (void)rig.micro(batch);
  }
  CHECK(rig.accelerator.any(rank() == ranks() - 1));
  CHECK(rig.probe->value() == -2.0);
}

TEST_CASE("the guard is opened once, by all ranks, and not with sync_each_batch") {
  Rig rig;
  {
    const auto join = rig.accelerator.join_uneven_inputs();
    CHECK(contains(error_text<accel::UsageError>([&] { (void)rig.accelerator.join_uneven_inputs(); }),
                   "expected no open guard, found one"));
  }
  Accelerator eager({.sync_each_batch = true});
  CHECK(contains(error_text<accel::UsageError>([&] { (void)eager.join_uneven_inputs(); }), "sync_each_batch = false"));

  if (ranks() == 1) return;
  std::optional<Rig> other(std::in_place);
  const auto train_one = [&] { (void)other->micro({1.0}); };
  if (rank() == 0) {
    const auto join = other->accelerator.join_uneven_inputs();
    CHECK(contains(error_text<accel::UsageError>(train_one), "found rank 0 under one and rank"));
  } else {
    CHECK(contains(error_text<accel::UsageError>(train_one), "found rank 0 under one and rank"));
  }
}
