// What existing programs do: complex parameters, averages of weights, optimizers of their own, archives.
#include "support/probe.hpp"
#include "support/rank_expect.hpp"
#include "support/torch_doctest.hpp"

#include <accel/averaging.hpp>
#include <accel/error.hpp>

#include <ATen/ops/allclose.h>
#include <ATen/ops/real.h>
#include <c10/util/complex.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/serialize.h>

#include <sstream>

using namespace accel;
using namespace accel::test;

namespace {

/// The gradient of real(w c) is conj(c), whatever w is.
at::Tensor complex_loss(const at::Tensor& w, double re, double im) {
  return at::real(w * at::full({}, c10::complex<double>(re, im), w.options().requires_grad(false))).mean();
}

/// Sharpness-aware minimisation: the gradient of a second pass, taken where the loss nearby is largest.
class Sam : public torch::optim::Optimizer {
 public:
  Sam(std::vector<at::Tensor> parameters, double rate, double radius)
      : Optimizer({torch::optim::OptimizerParamGroup(std::move(parameters))},
                  std::make_unique<torch::optim::SGDOptions>(rate)),
        rate_(rate),
        radius_(radius) {}

  at::Tensor step(LossClosure closure) override {
    at::Tensor loss;
    {
      const at::AutoGradMode with_gradients(true);
      loss = closure();
    }
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> steps;
    for (at::Tensor& parameter : param_groups_.front().params()) {
      steps.push_back(parameter.grad().sign() * radius_);
      parameter.add_(steps.back());
    }
    {
      const at::AutoGradMode with_gradients(true);
      closure();
    }
    std::size_t at = 0;
    for (at::Tensor& parameter : param_groups_.front().params()) {
      parameter.sub_(steps[at++]);
      parameter.sub_(parameter.grad(), rate_);
    }
    return loss;
  }

 private:
  double rate_;
  double radius_;
};

torch::jit::Module scripted() {
  torch::jit::Module module("Scale");
  module.register_parameter("w", at::full({}, 2.0).requires_grad_(true), false);
  module.define("def forward(self, x):\n    return self.w * x\n");
  return module;
}

}  // namespace

TEST_CASE("complex gradients stay local before the boundary, and are the mean over ranks after it") {
  for (const at::ScalarType type : {at::kComplexFloat, at::kComplexDouble}) {
    Accelerator accelerator({.gradient_accumulation_steps = 2});
    at::Tensor w = at::zeros({3}, type).requires_grad_(true);
    at::Tensor frozen_size = at::zeros({5}, at::kFloat).requires_grad_(true);
    const NamedParameters model = parameters({{"w", w}, {"real", frozen_size}});
    torch::optim::SGD sgd({w, frozen_size}, 1.0);
    auto [prepared, optimizer] = accelerator.prepare(model, sgd);
    Traffic traffic(accelerator);
    for (int micro = 0; micro < 2; ++micro) {
      const auto guard = accelerator.accumulate(prepared);
      accelerator.backward(3.0 * complex_loss(w, mine(), 2.0 * mine()) + mine() * frozen_size.sum());
      // Half of it in each of two micro-batches; the mean of three makes 3 / 3.
      const double expected = micro == 0 ? 0.5 * mine() : mean_of_ranks();
      CHECK(w.grad()[1].item<c10::complex<double>>() == c10::complex<double>(expected, -2.0 * expected));
      CHECK(frozen_size.grad()[1].item<double>() == expected);
      CHECK((micro == 0 ? differs_between_ranks(at::view_as_real(w.grad()))
                        : same_on_all_ranks(at::view_as_real(w.grad()))));
      CHECK(traffic.bytes() == (micro == 0 ? 0 : sent(w.nbytes() + frozen_size.nbytes())));
      optimizer.step();
      optimizer.zero_grad();
    }
    const double moved = -mean_of_ranks();
    CHECK((w == at::full({3}, c10::complex<double>(moved, -2.0 * moved), type)).all().item<bool>());
    CHECK_FALSE(w.grad().defined());
  }
}

TEST_CASE("a lazily conjugated gradient in the place of the real one is reduced as what it is") {
  Accelerator accelerator({.gradient_accumulation_steps = 4});
  at::Tensor w = at::zeros({2}, at::kComplexDouble).requires_grad_(true);
  const NamedParameters model = parameters({{"w", w}});
  accelerator.prepare(model);
  for (int micro = 0; micro < 2; ++micro) {
    const auto guard = accelerator.accumulate(model);
    accelerator.backward(2.0 * complex_loss(w, mine(), 2.0 * mine()));  // conj(mine + 2 mine i)
  }
  w.mutable_grad() = w.grad().conj();
  accelerator.finish_window(model);
  CHECK(w.grad()[1].item<c10::complex<double>>() == c10::complex<double>(mean_of_ranks(), 2.0 * mean_of_ranks()));
}

TEST_CASE("complex gradients of a short window, and rank 0's complex parameters at prepare") {
  Accelerator accelerator({.gradient_accumulation_steps = 4});
  at::Tensor w = at::full({2}, c10::complex<double>(rank(), -rank()), at::kComplexDouble).requires_grad_(true);
  const NamedParameters model = parameters({{"w", w}});
  accelerator.prepare(model);
  CHECK((w == 0.0).all().item<bool>());
  {
    const auto guard = accelerator.accumulate(model, {.last = true});
    accelerator.backward(2.0 * complex_loss(w, mine(), 1.0));
  }
  CHECK(w.grad()[0].item<c10::complex<double>>() == c10::complex<double>(mean_of_ranks(), -1.0));
}

TEST_CASE("averages and targets that follow performed steps are equal on all ranks") {
  Rig rig({.gradient_accumulation_steps = 2});
  Ema average = ema(rig.probe, {.decay = 0.5});
  Probe target;
  rig.accelerator.on_step(rig.optimizer, [&] {
    average.update();
    polyak_update(target, rig.probe, 0.25);
  });
  std::string pattern;
  for (int micro = 0; micro < 4; ++micro) pattern += rig.micro({mine()});
  CHECK(pattern == ".S.S");
  const double m = mean_of_ranks();
  CHECK(rig.probe->value() == -2.0 * m);
  CHECK(average.updates() == 2);
  CHECK(average.parameters().front().tensor.item<double>() == 0.5 * (0.5 * -m) + 0.5 * -2.0 * m);
  CHECK(target->value() == 0.75 * (0.25 * -m) + 0.25 * -2.0 * m);
  CHECK(same_on_all_ranks(average.parameters().front().tensor));
  {
    const auto averaged = average.apply();
    CHECK(rig.probe->value() == -1.25 * m);
  }
  CHECK(rig.probe->value() == -2.0 * m);
  CHECK(rig.micro({mine()}) == '.');
  CHECK(rig.micro({mine()}) == 'S');
  CHECK(rig.probe->value() == -3.0 * m);
}

TEST_CASE("an optimizer that runs a second pass inside its step (SAM) sees gradients of all ranks in both") {
  Accelerator accelerator;
  Probe probe(1.0, at::kDouble);
  Sam sam(probe->parameters(), 0.25, 0.5);
  auto [model, optimizer] = accelerator.prepare(probe, sam);
  Traffic traffic(accelerator);
  double w = 1.0;
  for (int step = 0; step < 5; ++step) {
    int passes = 0;
    const at::Tensor loss = optimizer.step([&] {
      ++passes;
      at::Tensor local = 0.5 * mine() * model->w * model->w;  // its gradient is mine() w
      accelerator.backward(local);
      return local;
    });
    const double slope = mean_of_ranks();
    CHECK(loss.item<double>() == doctest::Approx(0.5 * slope * w * w).epsilon(1e-14));
    w -= 0.25 * slope * (w + (w > 0 ? 0.5 : -0.5));
    CHECK(passes == 2);
    CHECK(probe->value() == doctest::Approx(w).epsilon(1e-14));
    CHECK(same_on_all_ranks(probe->w));
    CHECK(traffic.bytes() == sent(2 * probe->w.nbytes()));
    optimizer.zero_grad();
  }
  CHECK(optimizer.steps() == 5);
}

TEST_CASE("an optimizer made anew for each epoch begins anew, in whole windows and inside them") {
  for (const int micro_batches : {4, 3}) {
    Accelerator accelerator({.gradient_accumulation_steps = 2});
    Probe probe(0.0, at::kDouble);
    accelerator.prepare(probe);
    Probe plain(0.0, at::kDouble);
    for (int epoch = 0; epoch < 3; ++epoch) {
      torch::optim::SGD sgd(probe->parameters(), torch::optim::SGDOptions(0.5).momentum(0.5));
      auto optimizer = accelerator.prepare(sgd);
      CHECK(optimizer.steps() == 0);
      CHECK(optimizer.step() == Stepped::kNo);  // what the last epoch's stepped with is not its own
      torch::optim::SGD bare(plain->parameters(), torch::optim::SGDOptions(0.5).momentum(0.5));
      std::string pattern;
      for (int micro = 0; micro < micro_batches; ++micro) {
        const auto guard = accelerator.accumulate(probe, {.last = micro + 1 == micro_batches});
        accelerator.backward(probe->loss({mine()}));
        pattern += optimizer.step() == Stepped::kYes ? 'S' : '.';
        optimizer.zero_grad();
      }
      for (int window = 0; window < 2; ++window) {
        bare.zero_grad();
        plain->loss({mean_of_ranks()}).backward();
        bare.step();
      }
      CHECK(pattern == (micro_batches == 4 ? ".S.S" : ".SS"));
      CHECK(probe->value() == plain->value());
      CHECK(same_on_all_ranks(probe->w));
    }
  }
}

TEST_CASE("archives of modules and optimizers are read and written through what prepare returned") {
  torch::manual_seed(static_cast<std::uint64_t>(rank()) + 1);
  Accelerator accelerator;
  torch::nn::Sequential net(torch::nn::Linear(2, 3), torch::nn::Linear(3, 1));
  torch::optim::Adam adam(net->parameters(), 0.1);
  auto [model, optimizer] = accelerator.prepare(net, adam);
  const at::Tensor x = at::full({4, 2}, mine());
  const auto train = [&](int steps) {
    for (int step = 0; step < steps; ++step) {
      const auto guard = accelerator.accumulate(model);
      accelerator.backward(model->forward(x).square().mean());
      optimizer.step();
      optimizer.zero_grad();
    }
  };
  train(2);
  std::stringstream weights;
  std::stringstream state;
  torch::save(model, weights);
  torch::save(optimizer, state);
  train(2);
  const at::Tensor expected = net->parameters()[0].detach().clone();

  // What plain LibTorch reads from them, and what it wrote, read back in the middle of a training.
  torch::nn::Sequential plain(torch::nn::Linear(2, 3), torch::nn::Linear(3, 1));
  std::stringstream for_plain(weights.str());
  torch::load(plain, for_plain);
  CHECK_FALSE(at::equal(plain->parameters()[0], expected));
  torch::optim::Adam plain_adam(plain->parameters(), 0.5);
  std::stringstream state_for_plain(state.str());
  torch::load(plain_adam, state_for_plain);
  CHECK(plain_adam.param_groups()[0].options().get_lr() == 0.1);

  torch::load(model, weights);
  torch::load(optimizer, state);
  train(2);
  CHECK(at::equal(net->parameters()[0], expected));
  CHECK(same_on_all_ranks(net->parameters()[0]));
}

TEST_CASE("a scripted module is trained with a head, saved as it is, and read again") {
  Accelerator accelerator({.gradient_accumulation_steps = 2});
  torch::jit::Module backbone = scripted();
  Probe head(1.0);
  const auto parameter = [](const torch::jit::Module& module) { return module.attr("w").toTensor(); };
  torch::optim::SGD sgd({parameter(backbone), head->w}, 0.25);
  auto [script, prepared_head, optimizer] = accelerator.prepare(backbone, head, sgd);
  Traffic traffic(accelerator);
  for (int micro = 0; micro < 2; ++micro) {
    const auto guard = accelerator.accumulate(script, prepared_head);
    const at::Tensor y = script.forward({at::full({}, mine())}).toTensor();
    accelerator.backward(y * head->w);  // y = w x: gradients x of w, 2 x of the head
    CHECK(gradient_of(parameter(script)) == (micro == 0 ? 0.5 * mine() : mean_of_ranks()));
    CHECK(gradient_of(head->w) == (micro == 0 ? mine() : 2.0 * mean_of_ranks()));
    CHECK(traffic.bytes() == (micro == 0 ? 0 : sent(2 * sizeof(float))));
    optimizer.step();
    optimizer.zero_grad();
  }
  const double w = 2.0 - 0.25 * mean_of_ranks();
  CHECK(parameter(backbone).item<double>() == w);
  std::stringstream archive;
  script.save(archive);
  torch::jit::Module loaded = torch::jit::load(archive);
  CHECK(loaded.forward({at::full({}, 3.0)}).toTensor().item<double>() == 3.0 * w);
  CHECK(parameter(loaded).requires_grad());
}

TEST_CASE("case 128: a policy whose gradients are cleared in every micro-batch loses none of its window") {
  // The loop of the actor-critic codes: each network clears its gradients before its own backward, the policy's loss
  // goes through the critic, and both step in each micro-batch as far as the program can tell.
  Accelerator accelerator({.gradient_accumulation_steps = 4});
  Probe critic(1.0, at::kDouble);
  Probe policy(0.0, at::kDouble);
  torch::optim::SGD sgd_critic(critic->parameters(), 1.0 / 1024);
  torch::optim::SGD sgd_policy(policy->parameters(), 1.0);
  auto [mc, mp, oc, op] = accelerator.prepare(critic, policy, sgd_critic, sgd_policy);
  Traffic traffic(accelerator);
  double seen = 0.0;
  for (int micro = 0; micro < 4; ++micro) {
    const auto guard = accelerator.accumulate(mc, mp);
    oc.zero_grad();
    accelerator.backward(mc->loss({mine()}), {.inputs = {mc}});
    oc.step();
    op.zero_grad();
    // Its gradient is (micro + 1) x mine() x w of the critic, which moves only after the window.
    accelerator.backward(mc->w.detach() * mp->loss({(micro + 1.0) * mine()}), {.inputs = {mp}});
    seen += micro < 3 ? (micro + 1.0) * mine() / 4.0 : 0.0;
    if (micro < 3) CHECK(gradient_of(policy->w) == seen);
    CHECK(traffic.bytes() == (micro < 3 ? 0 : sent(2 * sizeof(double))));
    CHECK((op.step() == Stepped::kYes) == (micro == 3));
  }
  const double w_critic = 1.0 - mean_of_ranks() / 1024;
  CHECK(critic->value() == w_critic);
  // Three micro-batches saw the critic as it was (the last one after its step), all four count.
  const double expected = ((1.0 + 2.0 + 3.0) + 4.0 * w_critic) / 4.0 * mean_of_ranks();
  CHECK(policy->value() == doctest::Approx(-expected).epsilon(1e-14));
  CHECK(same_on_all_ranks(policy->w));
}
