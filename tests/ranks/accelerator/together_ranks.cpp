// What ranks decide together, and accelerators beside each other.
#include "support/probe.hpp"
#include "support/rank_expect.hpp"
#include "support/torch_doctest.hpp"

#include <accel/error.hpp>

#include <ATen/Functions.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/serialize.h>

#include <chrono>
#include <sstream>
#include <stdexcept>

using namespace accel;
using namespace accel::test;

namespace {

/// The monotonic clock, which the processes of one host share.
double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

TEST_CASE("any, all and mean say the same on every rank") {
  Accelerator accelerator;
  const int last = ranks() - 1;
  CHECK(accelerator.any(rank() == last));
  CHECK_FALSE(accelerator.any(false));
  CHECK(accelerator.all(true));
  CHECK(accelerator.all(rank() != last) == false);
  CHECK(accelerator.mean(static_cast<double>(rank())) == last / 2.0);
  CHECK(accelerator.mean(1e-300) == doctest::Approx(1e-300));
  const at::Tensor mine_only = at::full({3}, static_cast<double>(rank()), at::kFloat);
  const at::Tensor mean = accelerator.mean(mine_only);
  CHECK((mean == last / 2.0).all().item<bool>());
  CHECK(mine_only[0].item<double>() == rank());
  CHECK_THROWS_AS((void)accelerator.mean(at::full({1}, 1, at::kLong)), UsageError);
}

TEST_CASE("case 126: a stop that one rank decides from its own data is taken by all at the same step") {
  Rig rig;
  int left_at = -1;
  for (int step = 0; step < 10; ++step) {
    rig.micro({mine()});
    const double kl = rank() == ranks() - 1 ? step / 10.0 : 0.0;
    if (rig.accelerator.any(kl > 0.25)) {
      left_at = step;
      break;
    }
  }
  CHECK(left_at == 3);
  CHECK(rig.probe->value() == -4.0 * mean_of_ranks());
}

TEST_CASE("the facts of a group are those of the accelerator") {
  Accelerator accelerator;
  CHECK(accelerator.num_processes() == ranks());
  CHECK(accelerator.process_index() == rank());
  CHECK(accelerator.is_main_process() == (rank() == 0));
  CHECK(accelerator.local_process_index() == rank());  // one host
  CHECK(accelerator.is_local_main_process() == (rank() == 0));
  int calls = 0;
  accelerator.on_main_process([&] { ++calls; });
  CHECK(calls == (rank() == 0 ? 1 : 0));
  accelerator.wait_for_everyone();
  const std::vector<at::Tensor> batch{at::full({1}, 1.0)};
  CHECK(accelerator.to_device(batch)[0].device() == accelerator.device());
}

TEST_CASE("main_process_first: the others wait at the beginning until the main process has left") {
  Accelerator accelerator;
  for (const bool throws : {false, true}) {
    double entered = 0.0;
    double leaving = 0.0;
    // The main process enters only when the others stand at the door, so that they would be first if they did not wait.
    at::Tensor word = at::zeros({1});
    if (rank() == 0)
      for (int other = 1; other < ranks(); ++other) recv(word, other);
    else
      send(word, 0);
    try {
      const auto first = accelerator.main_process_first();
      entered = now();
      if (rank() == 0) {
        (void)at::randn({200, 200}).matmul(at::randn({200, 200})).sum().item<double>();
        leaving = now();
        if (throws) throw std::runtime_error("on the main process");
      }
    } catch (const std::runtime_error& error) {
      CHECK(rank() == 0);
      CHECK(contains(error.what(), "on the main process"));
    }
    const auto all = all_gather(at::tensor({entered, leaving}, at::kDouble));
    for (std::size_t other = 1; other < all.size(); ++other)
      CHECK(all[other][0].item<double>() >= all[0][1].item<double>());
  }
}

TEST_CASE("main_process_first twice in a row, and one inside the other") {
  Accelerator accelerator;
  for (int time = 0; time < 3; ++time) {
    const auto outer = accelerator.main_process_first();
    const auto inner = accelerator.main_process_first();
  }
  accelerator.wait_for_everyone();
}

TEST_CASE("two accelerators in one process do not see each other") {
  Rig first({.gradient_accumulation_steps = 2});
  Rig second({.gradient_accumulation_steps = 3});
  Traffic first_traffic(first.accelerator);
  Traffic second_traffic(second.accelerator);
  std::string pattern;
  const auto loader = first.accelerator.prepare(ones_loader(6, ranks()));
  for (auto& batch : loader) {
    pattern += first.micro({batch[0] * mine()});
    // Of another accelerator: neither its loader's end nor its windows are seen.
    pattern += second.micro({2.0 * mine()}, {.last = false});
  }
  CHECK(pattern == "..S..SS...SS");
  CHECK(first.probe->value() == -3.0 * mean_of_ranks());
  CHECK(second.probe->value() == doctest::Approx(-4.0 * mean_of_ranks()).epsilon(1e-6));
  CHECK(first_traffic.bytes() == sent(12));
  CHECK(second_traffic.bytes() == sent(8));
  CHECK(first.accelerator.sync_gradients());
  CHECK_THROWS_AS((void)first.accelerator.accumulate(second.probe), UsageError);
}

TEST_CASE("two accelerators whose guards overlap") {
  Rig first({.gradient_accumulation_steps = 2});
  Rig second;
  for (int micro = 0; micro < 2; ++micro) {
    const auto outer = first.accelerator.accumulate(first.probe);
    const auto inner = second.accelerator.accumulate(second.probe);
    CHECK(first.accelerator.sync_gradients() == (micro == 1));
    CHECK(second.accelerator.sync_gradients());
    second.accelerator.backward(second.probe->loss({mine()}));
    first.accelerator.backward(first.probe->loss({mine()}));
    second.finish();
    first.finish();
  }
  CHECK(first.probe->value() == -mean_of_ranks());
  CHECK(second.probe->value() == -2.0 * mean_of_ranks());
}

TEST_CASE("an accelerator on a part of the ranks touches nothing outside") {
  const Group half = world().split(rank() % 2);
  const CommStats world_before = world().comm_stats();
  {
    Rig rig({.gradient_accumulation_steps = 2, .group = half});
    CHECK(rig.accelerator.num_processes() == half.size());
    CHECK(rig.accelerator.is_main_process() == (half.rank() == 0));
    double mean = 0.0;
    int members = 0;
    for (int r = rank() % 2; r < ranks(); r += 2, ++members) mean += one_more(r);
    mean /= members;
    // The two parts do different numbers of steps, in their own time.
    const int windows = rank() % 2 == 0 ? 3 : 1;
    for (int micro = 0; micro < 2 * windows; ++micro) rig.micro({mine()});
    CHECK(rig.probe->value() == -windows * mean);
    CHECK(same_on_all_ranks(rig.probe->w, half));
    CHECK(rig.accelerator.mean(mine()) == mean);
  }
  CHECK((world().comm_stats() - world_before).of(Purpose::kGradient).calls == 0);
  CHECK((world().comm_stats() - world_before).of(Purpose::kControl).calls == 0);
}

TEST_CASE("some ranks train, the others do not: a group made of the first") {
  if (ranks() < 2) return;
  const bool trains = rank() < ranks() / 2;
  const Group group = world().split(trains ? 0 : -1);
  if (trains) {
    Rig rig({.group = group});
    rig.micro({mine()});
    CHECK(same_on_all_ranks(rig.probe->w, group));
  }
  Probe result(trains ? 5.0 : 0.0);
  broadcast_parameters(result);
  CHECK(result->value() == 5.0);
}

TEST_CASE("case 127: a closure gets the loss averaged over ranks, so a line search takes the same way on all") {
  Accelerator accelerator;
  Scalars scalars(2, 1.0, at::kDouble);
  torch::optim::LBFGS lbfgs(scalars->parameters(),
                            torch::optim::LBFGSOptions(1.0).max_iter(5).line_search_fn("strong_wolfe"));
  auto [model, optimizer] = accelerator.prepare(scalars, lbfgs);
  int evaluations = 0;
  const auto local_loss = [](const Scalars& at_model, int r) {
    return (at_model->p[0] - 3.0 * one_more(r)).pow(2) + (at_model->p[1] + at_model->p[0] * one_more(r)).pow(4);
  };
  // One process with all the data.
  Scalars alone(2, 1.0, at::kDouble);
  torch::optim::LBFGS reference(alone->parameters(),
                                torch::optim::LBFGSOptions(1.0).max_iter(5).line_search_fn("strong_wolfe"));
  int reference_evaluations = 0;
  for (int step = 0; step < 5; ++step) {
    const at::Tensor mean = optimizer.step([&, &m = model] {
      ++evaluations;
      const at::Tensor loss = local_loss(m, rank());
      accelerator.backward(loss);
      return loss;
    });
    const at::Tensor expected = reference.step([&] {
      ++reference_evaluations;
      reference.zero_grad();
      at::Tensor loss = at::zeros({}, at::kDouble);
      for (int r = 0; r < ranks(); ++r) loss = loss + local_loss(alone, r) / ranks();
      loss.backward();
      return loss;
    });
    CHECK(mean.item<double>() == doctest::Approx(expected.item<double>()).epsilon(1e-8));
    CHECK(same_on_all_ranks(mean));
  }
  CHECK(same_on_all_ranks(scalars->p[0]));
  CHECK(same_on_all_ranks(scalars->p[1]));
  CHECK(same_on_all_ranks(at::tensor({evaluations})));
  CHECK(evaluations == reference_evaluations);
  CHECK(scalars->p[0].item<double>() == doctest::Approx(alone->p[0].item<double>()).epsilon(1e-6));
  CHECK(optimizer.steps() == 5);
}

TEST_CASE("an optimizer that was saved and loaded goes on as if nothing had been") {
  const auto options = torch::optim::AdamWOptions(0.1);
  const auto train = [](Accelerator& accelerator, Probe& model, Optimizer& optimizer, int from, int to) {
    for (int micro = from; micro < to; ++micro) {
      const auto guard = accelerator.accumulate(model);
      accelerator.backward(model->loss({mine() * (micro % 3 - 1.25)}));
      optimizer.step();
      optimizer.zero_grad();
    }
  };
  Accelerator accelerator({.gradient_accumulation_steps = 2});
  Probe probe;
  auto optimizer = accelerator.prepare(std::make_shared<torch::optim::AdamW>(probe->parameters(), options));
  accelerator.prepare(probe);
  train(accelerator, probe, optimizer, 0, 4);
  std::stringstream saved;
  torch::save(optimizer, saved);
  const double w = probe->value();
  train(accelerator, probe, optimizer, 4, 8);

  Accelerator again({.gradient_accumulation_steps = 2});
  Probe restored(w);
  auto loaded = again.prepare(std::make_shared<torch::optim::AdamW>(restored->parameters(), options));
  again.prepare(restored);
  torch::load(loaded, saved);
  train(again, restored, loaded, 4, 8);
  CHECK(at::equal(restored->w, probe->w));
  CHECK(same_on_all_ranks(restored->w));
}

TEST_CASE("on_step runs on every rank after each performed step, with the new parameters") {
  Rig rig({.gradient_accumulation_steps = 2});
  std::vector<double> seen;
  rig.accelerator.on_step(rig.optimizer, [&] { seen.push_back(rig.probe->value()); });
  for (int micro = 0; micro < 5; ++micro) rig.micro({mine()});
  CHECK(seen == std::vector<double>{-mean_of_ranks(), -2.0 * mean_of_ranks()});
}

TEST_CASE("the number of steps changes in the middle of a window; what it held is what it is divided by") {
  for (const int after : {1, 2, 3, 8}) {
    Rig rig({.gradient_accumulation_steps = 4}, at::kDouble);
    CHECK(rig.micro({mine()}, {.last = false}) == '.');
    rig.accelerator.set_gradient_accumulation_steps(after);
    int micro = 1;
    while (rig.micro({mine() + micro}, {.last = false}) != 'S') ++micro;
    CHECK(micro + 1 == std::max(2, after));
    CHECK(rig.probe->value() == doctest::Approx(-(mean_of_ranks() + micro / 2.0)).epsilon(1e-12));
    CHECK(same_on_all_ranks(rig.probe->w));
  }
}

TEST_CASE("free_memory and prepare again: gradients are reduced as before, with no hook left from the first time") {
  Rig rig({.gradient_accumulation_steps = 2});
  rig.micro({mine()});
  rig.micro({mine()});
  rig.accelerator.free_memory();
  Traffic traffic(rig.accelerator);
  std::tie(rig.probe, rig.optimizer) = rig.accelerator.prepare(rig.probe, rig.sgd);
  CHECK(rig.micro({mine()}) == '.');
  CHECK(rig.micro({mine()}) == 'S');
  CHECK(traffic.bytes() == sent(4));
  CHECK(rig.probe->value() == -2.0 * mean_of_ranks());
}

TEST_CASE("a model that outlives its accelerator goes on without it") {
  Probe probe;
  {
    Accelerator accelerator({.gradient_accumulation_steps = 2});
    accelerator.prepare(probe);
    const auto guard = accelerator.accumulate(probe);
    accelerator.backward(probe->loss({mine()}));
  }
  probe->zero_grad();
  probe->loss({mine()}).backward();
  CHECK(gradient_of(probe->w) == mine());
}
