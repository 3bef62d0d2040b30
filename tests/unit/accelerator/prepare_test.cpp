// What prepare takes and gives back, in one process.
#include "support/probe.hpp"
#include "support/rank_expect.hpp"
#include "support/torch_doctest.hpp"

#include <accel/error.hpp>

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <type_traits>

using namespace accel;
using namespace accel::test;

namespace {

struct CountingSchedule {
  int steps = 0;
  void step() { ++steps; }
};

// A program's own class with tensors in it.
struct Table {
  at::Tensor rows = at::full({2}, 1.0).requires_grad_(true);
  at::Tensor counts = at::full({2}, 5.0);
};

}  // namespace

template <>
struct accel::ModelTraits<Table> {
  static std::vector<NamedTensor> parameters(const Table& table) { return {{"rows", table.rows}}; }
  static std::vector<NamedTensor> buffers(const Table& table) { return {{"counts", table.counts}}; }
};

TEST_CASE("prepare returns what it was given, in the order given, each as the type it has then") {
  Accelerator accelerator;
  Probe probe;
  torch::optim::SGD sgd(probe->parameters(), 1.0);
  const auto loader = make_data_loader(Values{{1.0, 2.0}});
  CountingSchedule schedule;
  auto prepared = accelerator.prepare(schedule, loader, sgd, probe);
  static_assert(
      std::is_same_v<decltype(prepared), std::tuple<Scheduler, DataLoader<std::vector<double>>, Optimizer, Probe>>);
  CHECK(std::get<3>(prepared).ptr() == probe.ptr());
  CHECK(&std::get<2>(prepared).torch() == &sgd);
  CHECK(std::get<1>(prepared).size() == 2);
  auto [again, loader_again, scheduler_again, optimizer_again] = accelerator.prepare(probe, loader, schedule, sgd);
  CHECK(again.ptr() == probe.ptr());
  CHECK(optimizer_again.impl() == std::get<2>(prepared).impl());
  CHECK(scheduler_again.impl() == std::get<0>(prepared).impl());
}

TEST_CASE("one thing alone comes back bare, a module by reference as a reference, a pointer as a pointer") {
  Accelerator accelerator;
  ProbeImpl module;
  static_assert(std::is_same_v<decltype(accelerator.prepare(module)), ProbeImpl&>);
  CHECK(&accelerator.prepare(module) == &module);
  auto shared = std::make_shared<ProbeImpl>();
  static_assert(std::is_same_v<decltype(accelerator.prepare(shared)), std::shared_ptr<ProbeImpl>>);
  CHECK(accelerator.prepare(shared) == shared);
  ProbeImpl other;
  CHECK(accelerator.prepare(&other) == &other);
  // All of them are prepared, whichever way they are named then.
  { const auto micro = accelerator.accumulate(module, *shared, &other); }
  { const auto micro = accelerator.accumulate({&module, shared, other}); }
}

TEST_CASE("preparing twice is harmless: one model, one optimizer, one step") {
  Accelerator accelerator({.gradient_accumulation_steps = 2});
  Probe probe;
  torch::optim::SGD sgd(probe->parameters(), 1.0);
  auto [model, optimizer] = accelerator.prepare(probe, sgd);
  auto [model_again, optimizer_again] = accelerator.prepare(model, optimizer);
  CHECK(optimizer_again.impl() == optimizer.impl());
  for (int micro = 0; micro < 2; ++micro) {
    const auto guard = accelerator.accumulate(model_again);
    accelerator.backward(model->loss({3.0}));
    optimizer.step();
    optimizer_again.step();
  }
  CHECK(probe->value() == -3.0);
  CHECK(optimizer.steps() == 1);
}

TEST_CASE("preparing again inside a window keeps the window") {
  Rig rig({.gradient_accumulation_steps = 2});
  rig.micro({2.0});
  rig.accelerator.prepare(rig.probe, rig.sgd);
  Probe other;
  rig.accelerator.prepare(other);
  CHECK(rig.accelerator.pending_micro_batches(rig.probe) == 1);
  CHECK(rig.micro({4.0}) == 'S');
  CHECK(rig.probe->value() == -3.0);
}

TEST_CASE("members, not structured bindings, in a class") {
  struct Learner {
    explicit Learner(Accelerator& by) : accelerator(by) {
      optimizer = accelerator.prepare(std::make_unique<torch::optim::SGD>(net->parameters(), 1.0));
      net = accelerator.prepare(net);
    }
    Accelerator& accelerator;
    Optimizer optimizer;
    std::shared_ptr<ProbeImpl> net = std::make_shared<ProbeImpl>();
  };
  Accelerator accelerator;
  Learner learner(accelerator);
  const auto micro = accelerator.accumulate(learner.net);
  accelerator.backward(learner.net->loss({2.0}));
  CHECK(learner.optimizer.step() == Stepped::kYes);
  CHECK(learner.net->value() == -2.0);
}

TEST_CASE("schedulers are bound to the optimizer of the call, the n-th to the n-th, or by name") {
  Accelerator accelerator;
  Probe first;
  Probe second;
  torch::optim::SGD sgd1(first->parameters(), 1.0);
  torch::optim::SGD sgd2(second->parameters(), 1.0);
  CountingSchedule s1;
  CountingSchedule s2;
  CountingSchedule s3;
  CountingSchedule s4;
  auto [m1, m2, o1, o2, p1, p2] = accelerator.prepare(first, second, sgd1, sgd2, s1, s2);
  auto p3 = accelerator.prepare_scheduler(s3, o2);
  CHECK(contains(error_text<UsageError>([&] { (void)accelerator.prepare(s4); }), "prepare_scheduler"));
  const auto micro = accelerator.accumulate(m2);
  accelerator.backward(m2->loss({1.0}));
  o1.step();
  o2.step();
  p1.step();
  p2.step();
  p3.step();
  CHECK(s1.steps == 0);
  CHECK(s2.steps == 1);
  CHECK(s3.steps == 1);
}

TEST_CASE("two schedulers of one optimizer both follow it") {
  Accelerator accelerator;
  Probe probe;
  torch::optim::SGD sgd(probe->parameters(), 1.0);
  CountingSchedule s1;
  CountingSchedule s2;
  auto [model, optimizer, p1, p2] = accelerator.prepare(probe, sgd, s1, s2);
  const auto micro = accelerator.accumulate(model);
  accelerator.backward(model->loss({1.0}));
  optimizer.step();
  p1.step();
  p2.step();
  CHECK(s1.steps == 1);
  CHECK(s2.steps == 1);
}

TEST_CASE("tensors without a module are a model") {
  Accelerator accelerator({.gradient_accumulation_steps = 2});
  at::Tensor alpha = at::full({}, 0.0).requires_grad_(true);
  const auto list = parameters({{"log_alpha", alpha}});
  torch::optim::SGD sgd({alpha}, 1.0);
  auto [model, optimizer] = accelerator.prepare(list, sgd);
  for (int micro = 0; micro < 2; ++micro) {
    const auto guard = accelerator.accumulate(list);
    accelerator.backward(alpha * 5.0);
    optimizer.step();
  }
  CHECK(alpha.item<double>() == -5.0);
}

TEST_CASE("a class with ModelTraits is a model") {
  Accelerator accelerator;
  Table table;
  torch::optim::SGD sgd({table.rows}, 1.0);
  auto [model, optimizer] = accelerator.prepare(table, sgd);
  static_assert(std::is_same_v<decltype(accelerator.prepare(table)), Table&>);
  CHECK(ModelRef(table).buffers().size() == 1);
  const auto micro = accelerator.accumulate(table);
  accelerator.backward((table.rows * 3.0).sum());
  CHECK(optimizer.step() == Stepped::kYes);
  CHECK(table.rows[1].item<double>() == -2.0);
}

TEST_CASE("a TorchScript module is a model, however often its handle is copied") {
  Accelerator accelerator;
  torch::jit::Module script("scripted");
  script.register_parameter("w", at::full({}, 0.0).requires_grad_(true), false);
  script.define("def forward(self, x):\n    return (self.w * x).mean()\n");
  const at::Tensor w = script.attr("w").toTensor();
  torch::optim::SGD sgd({w}, 1.0);
  auto [model, optimizer] = accelerator.prepare(script, sgd);
  torch::jit::Module copy = model;
  const auto micro = accelerator.accumulate(copy);
  accelerator.backward(copy.forward({at::full({2}, 6.0)}).toTensor());
  CHECK(optimizer.step() == Stepped::kYes);
  CHECK(w.item<double>() == -6.0);
}

TEST_CASE("parameters with sparse gradients are refused by name, at prepare") {
  struct Net : torch::nn::Module {
    torch::nn::Embedding words =
        register_module("words", torch::nn::Embedding(torch::nn::EmbeddingOptions(4, 2).sparse(true)));
  };
  Accelerator accelerator;
  Net net;
  const std::string text = error_text<UsageError>([&] { accelerator.prepare(net); });
  CHECK(contains(text, "accel[0/1] prepare:"));
  CHECK(contains(text, "'words.weight'"));
  CHECK_THROWS_AS((void)accelerator.accumulate(net), UsageError);
}

TEST_CASE("a parameter that is the result of an operation is refused by name") {
  Accelerator accelerator;
  const at::Tensor leaf = at::full({}, 1.0).requires_grad_(true);
  CHECK(contains(error_text<UsageError>([&] { accelerator.prepare(parameters({{"twice", leaf * 2.0}})); }), "'twice'"));
}

TEST_CASE("free_memory forgets what was prepared, and it can be prepared again") {
  Rig rig({.gradient_accumulation_steps = 2});
  rig.micro({1.0});
  {
    const auto guard = rig.accelerator.accumulate(rig.probe);
    CHECK_THROWS_AS(rig.accelerator.free_memory(), UsageError);
  }
  rig.accelerator.free_memory();
  CHECK(rig.accelerator.sync_gradients());
  CHECK_THROWS_AS((void)rig.accelerator.accumulate(rig.probe), UsageError);
  rig.probe->zero_grad();
  std::tie(rig.probe, rig.optimizer) = rig.accelerator.prepare(rig.probe, rig.sgd);
  CHECK(rig.accelerator.pending_micro_batches(rig.probe) == 0);
  CHECK(rig.micro({2.0}) == '.');
  CHECK(rig.micro({4.0}) == 'S');
  CHECK(rig.probe->value() == -3.0);
}

TEST_CASE("an optimizer kept over free_memory steps once its model is prepared again") {
  Rig rig;
  rig.micro({1.0});
  rig.accelerator.free_memory();
  rig.accelerator.prepare(rig.probe);
  CHECK(rig.micro({2.0}) == 'S');
  CHECK(rig.probe->value() == -3.0);
}

TEST_CASE("an accelerator can be moved, and its guards go on working") {
  Accelerator first({.gradient_accumulation_steps = 2});
  Probe probe;
  torch::optim::SGD sgd(probe->parameters(), 1.0);
  auto [model, optimizer] = first.prepare(probe, sgd);
  Accelerator second = std::move(first);
  for (int micro = 0; micro < 2; ++micro) {
    const auto guard = second.accumulate(model);
    second.backward(model->loss({1.0}));
    optimizer.step();
  }
  CHECK(probe->value() == -1.0);
}

TEST_CASE("an accelerator that was moved from, and empty optimizers and schedulers, are refused") {
  Accelerator from;
  Accelerator to = std::move(from);
  CHECK(contains(error_text<UsageError>([&] { (void)from.device(); }), "one that was moved from"));  // NOLINT
  CHECK(contains(error_text<UsageError>([&] { (void)from.prepare(Optimizer()); }), "one that was moved from"));
  CHECK(contains(error_text<UsageError>([&] { (void)to.prepare(Optimizer()); }), "found an empty one"));
  CHECK(contains(error_text<UsageError>([&] { (void)to.prepare(Scheduler()); }), "found an empty one"));
}

TEST_CASE("options out of range are refused by name before anything else") {
  const auto text = [](const AcceleratorOptions& options) {
    return error_text<UsageError>([&] { const Accelerator accelerator(options); });
  };
  CHECK(contains(text({.gradient_accumulation_steps = 0}), "expected gradient_accumulation_steps >= 1, found 0"));
  CHECK(contains(text({.gradient_accumulation_steps = -3}), "found -3"));
  CHECK(contains(text({.bucket_bytes = 0}), "expected bucket_bytes >= 1, found 0"));
  CHECK(contains(text({.first_bucket_bytes = -1}), "expected first_bucket_bytes >= 1, found -1"));
  CHECK(contains(text({.comm_timeout = std::chrono::milliseconds(0)}), "comm_timeout"));
  Accelerator accelerator({.gradient_accumulation_steps = 4});
  CHECK(contains(error_text<UsageError>([&] { accelerator.set_gradient_accumulation_steps(0); }), "found 0"));
  CHECK(accelerator.gradient_accumulation_steps() == 4);
}
