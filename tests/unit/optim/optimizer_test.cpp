// The prepared optimizer and scheduler of one process: when they act, what they refuse, what they save.
#include "support/probe.hpp"
#include "support/rank_expect.hpp"
#include "support/torch_doctest.hpp"

#include <accel/error.hpp>

#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/serialize.h>

#include <sstream>
#include <type_traits>

using namespace accel;
using namespace accel::test;

namespace {

struct CountingSchedule {
  int steps = 0;
  void step() { ++steps; }
};

}  // namespace

TEST_CASE("step says when it stepped and counts its steps") {
  Rig rig({.gradient_accumulation_steps = 3});
  CHECK(rig.optimizer.step() == Stepped::kNo);
  std::string pattern;
  for (int micro = 0; micro < 7; ++micro) pattern += rig.micro({3.0});
  CHECK(pattern == "..S..S.");
  CHECK(rig.optimizer.steps() == 2);
  CHECK(rig.probe->value() == doctest::Approx(-6.0).epsilon(1e-6));
  CHECK_FALSE(rig.optimizer.overflowed());
}

TEST_CASE("a second step of one window does nothing") {
  Rig rig;
  const auto micro = rig.accelerator.accumulate(rig.probe);
  rig.accelerator.backward(rig.probe->loss({2.0}));
  CHECK(rig.optimizer.step() == Stepped::kYes);
  CHECK(rig.optimizer.step() == Stepped::kNo);
  CHECK(rig.probe->value() == -2.0);
}

TEST_CASE("step may come after the guard has ended") {
  Rig rig({.gradient_accumulation_steps = 2});
  for (int micro = 0; micro < 4; ++micro) {
    {
      const auto guard = rig.accelerator.accumulate(rig.probe);
      rig.accelerator.backward(rig.probe->loss({4.0}));
    }
    CHECK(rig.finish() == (micro % 2 == 1 ? 'S' : '.'));
  }
  CHECK(rig.probe->value() == -8.0);
}

TEST_CASE("case 116: zero_grad clears if and only if the optimizer stepped since, wherever it stands in the loop") {
  for (const int place : {0, 1, 2}) {
    Rig rig({.gradient_accumulation_steps = 4});
    for (int micro = 0; micro < 8; ++micro) {
      if (place == 0) rig.optimizer.zero_grad();
      const auto guard = rig.accelerator.accumulate(rig.probe);
      if (place == 1) rig.optimizer.zero_grad();
      rig.accelerator.backward(rig.probe->loss({1.0}));
      rig.optimizer.step();
      if (place == 2) rig.optimizer.zero_grad();
    }
    CAPTURE(place);
    CHECK(rig.probe->value() == -2.0);  // clearing at the boundary only would give -3 at places 0 and 1
  }
}

TEST_CASE("one scheduler step for each performed optimizer step") {
  Accelerator accelerator({.gradient_accumulation_steps = 4});
  Probe probe;
  torch::optim::SGD sgd(probe->parameters(), 1.0);
  CountingSchedule schedule;
  auto [model, optimizer, scheduler] = accelerator.prepare(probe, sgd, schedule);
  std::string after;
  for (int micro = 0; micro < 10; ++micro) {
    const auto guard = accelerator.accumulate(model, {.last = micro == 9});
    accelerator.backward(model->loss({1.0}));
    optimizer.step();
    scheduler.step();
    scheduler.step();  // nothing new since the line before
    optimizer.zero_grad();
    after += std::to_string(schedule.steps);
  }
  CHECK(after == "0001111223");  // case 64: three steps for ten micro-batches
  CHECK(scheduler.steps() == 3);
}

TEST_CASE("a schedule of torch sets the learning rates that it sets without accel") {
  Probe by_hand;
  torch::optim::SGD plain(by_hand->parameters(), 1.0);
  torch::optim::StepLR plain_schedule(plain, 1, 0.5);
  Accelerator accelerator({.gradient_accumulation_steps = 2});
  Probe probe;
  torch::optim::SGD sgd(probe->parameters(), 1.0);
  torch::optim::StepLR schedule(sgd, 1, 0.5);
  auto [optimizer, scheduler, model] = accelerator.prepare(sgd, schedule, probe);
  for (int micro = 0; micro < 8; ++micro) {
    const auto guard = accelerator.accumulate(model, {.last = false});
    accelerator.backward(model->loss({1.0}));
    optimizer.step();
    scheduler.step();
    optimizer.zero_grad();
    if (micro % 2 == 0) continue;
    plain.zero_grad();
    by_hand->loss({1.0}).backward();
    plain.step();
    plain_schedule.step();
    CHECK(probe->value() == by_hand->value());
  }
  CHECK(probe->value() > -3.0);  // four steps, and the rate went down
}

TEST_CASE("the optimizer beneath shows through") {
  Accelerator accelerator;
  Probe probe;
  torch::optim::SGD sgd(probe->parameters(), torch::optim::SGDOptions(0.5).momentum(0.9));
  auto [model, optimizer] = accelerator.prepare(probe, sgd);
  CHECK(&optimizer.torch() == &sgd);
  CHECK(optimizer.operator->() == &sgd);
  CHECK(&optimizer.param_groups() == &sgd.param_groups());
  CHECK(&optimizer.defaults() == &sgd.defaults());
  CHECK(optimizer->state().empty());
  static_cast<torch::optim::SGDOptions&>(optimizer.param_groups()[0].options()).lr(2.0);
  const auto micro = accelerator.accumulate(model);
  accelerator.backward(model->loss({1.0}));
  optimizer.step();
  CHECK(probe->value() == -2.0);
  CHECK(optimizer->state().size() == 1);
  static_assert(!std::is_base_of_v<torch::optim::Optimizer, Optimizer>);
}

TEST_CASE("torch::save and torch::load of a prepared optimizer are those of the optimizer beneath") {
  const auto options = torch::optim::SGDOptions(1.0).momentum(0.5);
  Accelerator accelerator;
  Probe probe;
  torch::optim::SGD sgd(probe->parameters(), options);
  auto [model, optimizer] = accelerator.prepare(probe, sgd);
  const auto train = [&accelerator, &m = model](Optimizer& by, double x) {
    const auto micro = accelerator.accumulate(m);
    accelerator.backward(m->loss({x}));
    by.step();
    by.zero_grad();
  };
  train(optimizer, 4.0);  // momentum 4, w -4
  std::stringstream prepared;
  torch::save(optimizer, prepared);
  std::stringstream plain;
  torch::save(sgd, plain);
  CHECK(prepared.str().size() == plain.str().size());

  Probe fresh(-4.0);
  torch::optim::SGD beneath(fresh->parameters(), options);
  auto restored = accelerator.prepare(beneath);
  torch::load(restored, plain);  // written by torch, read by accel
  accelerator.prepare(fresh);
  const auto micro = accelerator.accumulate(fresh);
  accelerator.backward(fresh->loss({1.0}));
  restored.step();
  CHECK(fresh->value() == -7.0);  // -4 - (0.5 x 4 + 1)

  Probe other(-4.0);
  torch::optim::SGD torch_only(other->parameters(), options);
  torch::load(torch_only, prepared);  // written by accel, read by torch
  other->loss({1.0}).backward();
  torch_only.step();
  CHECK(other->value() == -7.0);
}

TEST_CASE("on_step callbacks run after each performed step, in order") {
  Rig rig({.gradient_accumulation_steps = 2});
  std::string calls;
  rig.accelerator.on_step(rig.optimizer, [&] { calls += "a" + std::to_string(static_cast<int>(-rig.probe->value())); });
  rig.accelerator.on_step(rig.optimizer, [&] { calls += 'b'; });
  for (int micro = 0; micro < 5; ++micro) rig.micro({1.0});
  CHECK(calls == "a1ba2b");
}

TEST_CASE("an empty handle says that it is one") {
  Optimizer optimizer;
  Scheduler scheduler;
  Accelerator accelerator;
  CHECK(optimizer.empty());
  CHECK(scheduler.empty());
  CHECK_THROWS_AS((void)scheduler.steps(), UsageError);
  CHECK(contains(error_text<UsageError>([&] { optimizer.step(); }), "step: expected a prepared optimizer"));
  CHECK(contains(error_text<UsageError>([&] { optimizer.zero_grad(); }), "zero_grad"));
  CHECK(contains(error_text<UsageError>([&] { (void)optimizer.torch(); }), "prepare"));
  CHECK(contains(error_text<UsageError>([&] { scheduler.step(); }), "expected a prepared scheduler"));
  CHECK(contains(error_text<UsageError>([&] { accelerator.on_step(optimizer, [] {}); }), "on_step"));
}

TEST_CASE("a step is refused for a plain backward inside an accumulated window, and nothing changes") {
  Rig rig({.gradient_accumulation_steps = 2});
  rig.micro({1.0});
  const auto guard = rig.accelerator.accumulate(rig.probe);
  rig.probe->loss({1.0}).backward();
  const std::string text = error_text<UsageError>([&] { rig.optimizer.step(); });
  CHECK(contains(text, "accel[0/1] optimizer.step: expected"));
  CHECK(contains(text, "accelerator.backward"));
  CHECK(rig.probe->value() == 0.0);
}

TEST_CASE("one rank and no accumulation: a loop with a plain backward goes on working") {
  Rig rig;
  for (int micro = 0; micro < 3; ++micro) {
    rig.probe->loss({1.0}).backward();
    CHECK(rig.finish() == 'S');
  }
  CHECK(rig.probe->value() == -3.0);
}

TEST_CASE("one rank and no accumulation: plain backward calls between gradients cleared by the model, or not cleared") {
  Rig rig;
  for (int micro = 0; micro < 3; ++micro) {
    rig.probe->zero_grad();
    rig.probe->loss({1.0}).backward();
    CHECK(rig.optimizer.step() == Stepped::kYes);
    CHECK(rig.optimizer.step() == Stepped::kNo);
  }
  CHECK(rig.probe->value() == -3.0);
  rig.probe->loss({1.0}).backward();  // added to the gradient of before, as with torch
  CHECK(rig.optimizer.step() == Stepped::kYes);
  CHECK(rig.probe->value() == -5.0);
}

TEST_CASE("one optimizer over two models with windows of their own waits for both") {
  Accelerator accelerator({.gradient_accumulation_steps = 2});
  Probe a;
  Probe b;
  torch::optim::SGD sgd({a->w, b->w}, 1.0);
  auto [ma, mb, optimizer] = accelerator.prepare(a, b, sgd);
  std::string pattern;
  const auto micro = [&accelerator, &pattern, &o = optimizer](Probe& model) {
    const auto guard = accelerator.accumulate(model, {.last = false});
    accelerator.backward(model->loss({4.0}));
    pattern += o.step() == Stepped::kYes ? 'S' : '.';
    o.zero_grad();
  };
  micro(a);
  micro(b);
  micro(a);  // a is done, b is not
  micro(b);
  CHECK(pattern == "...S");
  CHECK(a->value() == -4.0);
  CHECK(b->value() == -4.0);
}

TEST_CASE("a closure is a window of its own, refused while windows are longer than one micro-batch") {
  Rig rig;
  int evaluations = 0;
  const auto closure = [&] {
    ++evaluations;
    rig.optimizer.zero_grad();
    const auto loss = rig.probe->loss({2.0});
    rig.accelerator.backward(loss);
    return loss;
  };
  CHECK(rig.optimizer.step(closure).item<double>() == 0.0);
  CHECK(rig.probe->value() == -2.0);
  CHECK(evaluations == 1);
  rig.accelerator.set_gradient_accumulation_steps(2);
  CHECK(contains(error_text<UsageError>([&] { rig.optimizer.step(closure); }),
                 "expected gradient_accumulation_steps = 1, found 2"));
  CHECK(evaluations == 1);
  rig.accelerator.set_gradient_accumulation_steps(1);
  const auto idle = [&] { return at::full({}, 1.0); };
  CHECK(contains(error_text<UsageError>([&] { rig.optimizer.step(idle); }), "backward"));
  CHECK(rig.probe->value() == -2.0);
}

TEST_CASE("a closure that is empty or returns no loss is refused") {
  Rig rig;
  CHECK(contains(error_text<UsageError>([&] { rig.optimizer.step(std::function<at::Tensor()>()); }),
                 "found an empty function"));
  const auto forgets = [&] {
    rig.accelerator.backward(rig.probe->loss({2.0}));
    return at::Tensor();
  };
  CHECK(contains(error_text<UsageError>([&] { rig.optimizer.step(forgets); }), "found an undefined tensor"));
}

TEST_CASE("LBFGS through a closure takes the steps that it takes without accel") {
  const auto options = torch::optim::LBFGSOptions(0.5).max_iter(4).line_search_fn("strong_wolfe");
  const auto loss_of = [](const Scalars& model) {
    return (model->p[0] - 3.0).pow(2) + 10.0 * (model->p[1] + model->p[0]).pow(2);
  };
  Scalars by_hand(2, 1.0, at::kDouble);
  torch::optim::LBFGS plain(by_hand->parameters(), options);
  for (int step = 0; step < 3; ++step)
    plain.step([&] {
      plain.zero_grad();
      auto loss = loss_of(by_hand);
      loss.backward();
      return loss;
    });
  Accelerator accelerator;
  Scalars scalars(2, 1.0, at::kDouble);
  torch::optim::LBFGS lbfgs(scalars->parameters(), options);
  auto [model, optimizer] = accelerator.prepare(scalars, lbfgs);
  for (int step = 0; step < 3; ++step)
    optimizer.step([&accelerator, &m = model, &loss_of] {
      auto loss = loss_of(m);
      accelerator.backward(loss);
      return loss;
    });
  CHECK(at::equal(scalars->p[0], by_hand->p[0]));
  CHECK(at::equal(scalars->p[1], by_hand->p[1]));
  CHECK(scalars->p[0].item<double>() != 1.0);
  CHECK(optimizer.steps() == 3);
}

TEST_CASE("parameter groups added after prepare are stepped") {
  Accelerator accelerator;
  Scalars scalars(2);
  torch::optim::SGD sgd({scalars->p[0]}, 1.0);
  auto [model, optimizer] = accelerator.prepare(scalars, sgd);
  optimizer->add_param_group(torch::optim::OptimizerParamGroup({scalars->p[1]}));
  const auto micro = accelerator.accumulate(model);
  accelerator.backward(scalars->p[0] * 2.0 + scalars->p[1] * 3.0);
  optimizer.step();
  CHECK(scalars->p[0].item<double>() == -2.0);
  CHECK(scalars->p[1].item<double>() == -3.0);
}

TEST_CASE("a model with two optimizers steps both, and each clears its own") {
  Accelerator accelerator({.gradient_accumulation_steps = 2});
  Scalars scalars(2);
  torch::optim::SGD first({scalars->p[0]}, 1.0);
  torch::optim::SGD second({scalars->p[1]}, 1.0);
  auto [a, model, b] = accelerator.prepare(first, scalars, second);
  for (int micro = 0; micro < 4; ++micro) {
    const auto guard = accelerator.accumulate(model);
    accelerator.backward(scalars->p[0] * 2.0 + scalars->p[1] * 4.0);
    a.step();
    a.zero_grad();
    if (micro % 2 == 1) CHECK(gradient_of(scalars->p[1]) == 4.0);
    b.step();
    b.zero_grad();
  }
  CHECK(scalars->p[0].item<double>() == -4.0);
  CHECK(scalars->p[1].item<double>() == -8.0);
}
