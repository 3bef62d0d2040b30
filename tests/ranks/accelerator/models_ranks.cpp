// Several models, parts of models, and models that change.
#include "support/probe.hpp"
#include "support/rank_expect.hpp"
#include "support/torch_doctest.hpp"

#include <accel/error.hpp>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

using namespace accel;
using namespace accel::test;

namespace {

// Data of one rank, which every rank can make.
at::Tensor data_of(int r, int seed, at::IntArrayRef shape) {
  at::Generator generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(1000 * seed + r));
  return at::randn(shape, generator, at::TensorOptions(at::kDouble));
}

struct Normed : torch::nn::Module {
  Normed() { to(at::kDouble); }
  at::Tensor forward(const at::Tensor& x) { return out(norm(in(x))); }
  torch::nn::Linear in = register_module("in", torch::nn::Linear(2, 3));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(3));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(3, 1));
};

void copy_weights(const torch::nn::Module& from, torch::nn::Module& to) {
  const at::NoGradGuard no_grad;
  const auto target = to.named_parameters();
  for (const auto& item : from.named_parameters()) target[item.key()].data().copy_(item.value());
}

}  // namespace

TEST_CASE("case 11: two models in one guard count once, and each is reduced once") {
  Accelerator accelerator({.gradient_accumulation_steps = 4});
  Probe a;
  Probe b;
  torch::optim::SGD sgd_a(a->parameters(), 1.0);
  torch::optim::SGD sgd_b(b->parameters(), 1.0);
  auto [ma, mb, oa, ob] = accelerator.prepare(a, b, sgd_a, sgd_b);
  Traffic traffic(accelerator);
  for (int micro = 0; micro < 4; ++micro) {
    const auto guard = accelerator.accumulate(ma, mb);
    CHECK(guard.closes_window() == (micro == 3));
    accelerator.backward(ma->loss({mine()}) + mb->loss({10.0 * mine()}));
    CHECK(traffic.calls() == (micro == 3 ? sent(2) : 0));
    CHECK((oa.step() == Stepped::kYes) == (micro == 3));
    CHECK((ob.step() == Stepped::kYes) == (micro == 3));
  }
  CHECK(a->value() == -mean_of_ranks());
  CHECK(b->value() == -10.0 * mean_of_ranks());
}

TEST_CASE("case 11: guards on two models may nest or follow one another, and each model counts its own") {
  for (const bool nested : {true, false}) {
    Accelerator accelerator({.gradient_accumulation_steps = 4});
    Probe a;
    Probe b;
    torch::optim::SGD sgd_a(a->parameters(), 1.0);
    torch::optim::SGD sgd_b(b->parameters(), 1.0);
    auto [ma, mb, oa, ob] = accelerator.prepare(a, b, sgd_a, sgd_b);
    Traffic traffic(accelerator);
    std::string pattern;
    for (int micro = 0; micro < 4; ++micro) {
      if (nested) {
        const auto outer = accelerator.accumulate(ma);
        const auto inner = accelerator.accumulate(mb);
        CHECK_FALSE((outer.closes_window() && micro != 3));
        accelerator.backward(ma->loss({mine()}) + mb->loss({mine()}));
        pattern += oa.step() == Stepped::kYes ? 'A' : '.';
        pattern += ob.step() == Stepped::kYes ? 'B' : '.';
      } else {
        {
          const auto first = accelerator.accumulate(ma);
          accelerator.backward(ma->loss({mine()}));
          pattern += oa.step() == Stepped::kYes ? 'A' : '.';
        }
        const auto second = accelerator.accumulate(mb);
        accelerator.backward(mb->loss({mine()}));
        pattern += ob.step() == Stepped::kYes ? 'B' : '.';
      }
      CHECK(traffic.calls() == (micro == 3 ? sent(2) : 0));
    }
    CHECK(pattern == "......AB");
    CHECK(a->value() == -mean_of_ranks());
    CHECK(b->value() == -mean_of_ranks());
  }
}

TEST_CASE("models at different micro-batches do not fit one guard") {
  Accelerator accelerator({.gradient_accumulation_steps = 4});
  Probe a;
  Probe b;
  accelerator.prepare(a, b);
  {
    const auto guard = accelerator.accumulate(a);
    accelerator.backward(a->loss({1.0}));
  }
  CHECK(contains(error_text<UsageError>([&] { (void)accelerator.accumulate(a, b); }), "finish_window"));
  accelerator.finish_window(a);
  { const auto guard = accelerator.accumulate(a, b); }
}

TEST_CASE("case 109: .inputs lets gradients flow into the models named only, as in a GAN") {
  Accelerator accelerator({.gradient_accumulation_steps = 2});
  Probe g;
  Probe d(1.0);
  torch::optim::SGD sgd_g(g->parameters(), 1.0);
  torch::optim::SGD sgd_d(d->parameters(), 1.0);
  auto [mg, md, og, od] = accelerator.prepare(g, d, sgd_g, sgd_d);
  Traffic traffic(accelerator);
  for (int micro = 0; micro < 2; ++micro) {
    const auto guard = accelerator.accumulate(mg, md);
    accelerator.backward(md->loss({2.0 * mine()}), {.inputs = {md}});
    const double pending = gradient_of(d->w);
    CHECK(traffic.calls() == (micro == 1 ? sent(1) : 0));
    // The generator's loss goes through the discriminator, d(w_d w_g x)/d w_g = w_d x.
    accelerator.backward(d->w * mg->loss({mine()}), {.inputs = {mg}});
    CHECK(traffic.calls() == (micro == 1 ? sent(1) : 0));
    CHECK(gradient_of(d->w) == pending);
    od.step();
    og.step();
    od.zero_grad();
    og.zero_grad();
  }
  CHECK(g->value() == -mean_of_ranks());
  CHECK(d->value() == 1.0 - 2.0 * mean_of_ranks());
}

TEST_CASE("case 109: several losses of each model, the discriminator stepped before the generator's loss is made") {
  Accelerator accelerator({.gradient_accumulation_steps = 2});
  Probe g;
  Probe d;
  torch::optim::SGD sgd_g(g->parameters(), 1.0);
  torch::optim::SGD sgd_d(d->parameters(), 1.0);
  auto [mg, md, og, od] = accelerator.prepare(g, d, sgd_g, sgd_d);
  double dw = 0.0;
  double gw = 0.0;
  for (int window = 0; window < 3; ++window) {
    double g_sum = 0.0;
    for (int micro = 0; micro < 2; ++micro) {
      const auto guard = accelerator.accumulate(mg, md);
      accelerator.backward(md->loss({mine()}), {.inputs = {md}, .more = true});
      accelerator.backward(md->loss({1.0}), {.inputs = {md}});
      od.step();
      od.zero_grad();
      if (micro == 1) dw -= mean_of_ranks() + 1.0;
      g_sum += dw * mean_of_ranks();
      accelerator.backward(d->w * mg->loss({mine()}), {.inputs = {mg}});
      og.step();
      og.zero_grad();
    }
    gw -= g_sum / 2.0;
    CHECK(d->value() == dw);
    CHECK(g->value() == gw);
  }
}

TEST_CASE("case 110: two models in one loss, taken in another order on each rank, are not swapped") {
  Accelerator accelerator;
  Probe a;
  Probe b;
  accelerator.prepare(a, b);
  for (int sync = 0; sync < 50; ++sync) {
    a->zero_grad();
    b->zero_grad();
    const auto guard = accelerator.accumulate(a, b);
    const bool a_first = (rank() + sync) % 2 == 0;
    const at::Tensor first = a_first ? a->loss({1.0}) : b->loss({100.0});
    const at::Tensor second = a_first ? b->loss({100.0}) : a->loss({1.0});
    accelerator.backward(first + second);
    CHECK(gradient_of(a->w) == 1.0);
    CHECK(gradient_of(b->w) == 100.0);
  }
}

TEST_CASE("case 110: the same with guards in another order, and with losses of one backward in another order") {
  Accelerator accelerator;
  Probe a;
  Probe b;
  accelerator.prepare(a, b);
  for (int sync = 0; sync < 10; ++sync) {
    a->zero_grad();
    b->zero_grad();
    const bool a_first = (rank() + sync) % 2 == 0;
    const auto guard = accelerator.accumulate(a, b);
    if (a_first)
      accelerator.backward({a->loss({mine()}), b->loss({100.0 * mine()})});
    else
      accelerator.backward({b->loss({100.0 * mine()}), a->loss({mine()})});
    CHECK(gradient_of(a->w) == mean_of_ranks());
    CHECK(gradient_of(b->w) == 100.0 * mean_of_ranks());
  }
}

TEST_CASE(
    "case 82: two forwards before one backward through BatchNorm give the gradient of one process on these halves") {
  Accelerator accelerator;
  Normed model;
  accelerator.prepare(model);
  Normed reference;
  for (int window = 0; window < 3; ++window) {
    copy_weights(model, reference);
    reference.zero_grad();
    for (int r = 0; r < ranks(); ++r)
      ((reference.forward(data_of(r, 10 + window, {4, 2})).mean() -
        reference.forward(data_of(r, 20 + window, {4, 2})).pow(2).mean()) /
       ranks())
          .backward();
    model.zero_grad();
    const at::Tensor real = model.forward(data_of(rank(), 10 + window, {4, 2}));
    // The guard begins a window, so buffers go round while the first graph is under way.
    const auto guard = accelerator.accumulate(model);
    const at::Tensor fake = model.forward(data_of(rank(), 20 + window, {4, 2}));
    accelerator.backward(real.mean() - fake.pow(2).mean());
    const auto expected = reference.named_parameters();
    for (const auto& item : model.named_parameters()) {
      CHECK(at::allclose(item.value().grad(), expected[item.key()].grad(), 1e-9, 1e-12));
      CHECK(same_on_all_ranks(item.value().grad()));
    }
  }
}

TEST_CASE("case 82: buffers of rank 0 go round when the next window begins, unless that is turned off") {
  for (const bool on : {true, false}) {
    Accelerator accelerator({.gradient_accumulation_steps = 2, .broadcast_buffers = on});
    Normed model;
    accelerator.prepare(model);
    Traffic traffic(accelerator, Purpose::kBuffer);
    for (int micro = 0; micro < 2; ++micro) {
      const auto guard = accelerator.accumulate(model);
      accelerator.backward(model.forward(data_of(rank(), micro, {4, 2})).mean());
    }
    CHECK(traffic.calls() == 0);
    CHECK(differs_between_ranks(model.norm->running_mean));
    const at::Tensor of_rank_0 = all_gather(model.norm->running_mean)[0].clone();
    const auto guard = accelerator.accumulate(model);
    if (on) {
      CHECK(at::equal(model.norm->running_mean, of_rank_0));
      CHECK(same_on_all_ranks(model.norm->running_var));
      CHECK((traffic.calls() > 0) == (ranks() > 1));
    } else {
      CHECK(differs_between_ranks(model.norm->running_mean));
      CHECK(traffic.calls() == 0);
    }
  }
}

TEST_CASE("case 84: prepare gives all ranks rank 0's parameters and buffers") {
  at::manual_seed(static_cast<std::uint64_t>(rank()) + 5);
  Normed model;
  model.norm->running_mean.fill_(rank() + 3.0);
  CHECK(differs_between_ranks(model.in->weight));
  const at::Tensor of_rank_0 = all_gather(model.in->weight.detach())[0].clone();
  Accelerator accelerator;
  accelerator.prepare(model);
  CHECK(at::equal(model.in->weight, of_rank_0));
  CHECK(model.in->weight.requires_grad());
  for (const auto& item : model.named_parameters()) CHECK(same_on_all_ranks(item.value()));
  for (const auto& item : model.named_buffers()) CHECK(same_on_all_ranks(item.value()));
  CHECK(model.norm->running_mean[0].item<double>() == 3.0);
}

TEST_CASE("case 84: broadcast_parameters needs no accelerator, and has a root") {
  Probe probe(rank() + 7.0);
  broadcast_parameters(probe, ranks() - 1);
  CHECK(probe->value() == ranks() + 6.0);
  CHECK_THROWS_AS(broadcast_parameters(probe, ranks()), UsageError);
  CHECK_THROWS_AS(broadcast_parameters(probe, -1), UsageError);
}

TEST_CASE("case 86: a seed of each rank's own after prepare gives other draws and the same weights") {
  set_seed(42);
  Normed model;
  Accelerator accelerator;
  accelerator.prepare(model);
  set_seed(42, {.device_specific = true});
  CHECK(differs_between_ranks(at::rand({4})));
  for (const auto& item : model.named_parameters()) CHECK(same_on_all_ranks(item.value()));
  set_seed(42);
  CHECK(same_on_all_ranks(at::rand({4})));
}

TEST_CASE("case 90: a module that contains a prepared one sends nothing inside its window") {
  struct Outer : torch::nn::Module {
    Probe inner = register_module("inner", Probe());
    Probe own = register_module("own", Probe());
  };
  for (const bool inner_first : {true, false}) {
    Accelerator accelerator({.gradient_accumulation_steps = 4});
    Outer outer;
    torch::optim::SGD sgd(outer.parameters(), 1.0);
    if (inner_first) accelerator.prepare(outer.inner);
    auto [model, optimizer] = accelerator.prepare(outer, sgd);
    if (!inner_first) accelerator.prepare(outer.inner);
    Traffic traffic(accelerator);
    for (int micro = 0; micro < 8; ++micro) {
      const auto guard = accelerator.accumulate(outer);
      accelerator.backward(outer.inner->loss({mine()}) + outer.own->loss({3.0 * mine()}));
      CHECK(traffic.bytes() == (micro % 4 == 3 ? sent(8) : 0));
      optimizer.step();
      optimizer.zero_grad();
    }
    CHECK(outer.inner->value() == -2.0 * mean_of_ranks());
    CHECK(outer.own->value() == -6.0 * mean_of_ranks());
  }
}

TEST_CASE("case 124: two models that share parameters have them reduced once, with the sum of both gradients") {
  // Windows are full with n = 2, and short with n = 3.
  for (const int n : {2, 3}) {
    Accelerator accelerator({.gradient_accumulation_steps = n});
    const at::Tensor shared = at::full({}, 0.0, at::kDouble).requires_grad_(true);
    const at::Tensor own_a = at::full({}, 0.0, at::kDouble).requires_grad_(true);
    const at::Tensor own_b = at::full({}, 0.0, at::kDouble).requires_grad_(true);
    const auto a = parameters({{"shared", shared}, {"own", own_a}});
    const auto b = parameters({{"encoder", shared}, {"own", own_b}});
    torch::optim::SGD sgd({shared, own_a, own_b}, 1.0);
    auto optimizer = std::get<2>(accelerator.prepare(a, b, sgd));
    Traffic traffic(accelerator);
    for (int micro = 0; micro < 4; ++micro) {
      const auto guard = accelerator.accumulate(a, b, {.last = micro % 2 == 1});
      accelerator.backward({shared * mine() + own_a * 2.0, shared * (3.0 * mine()) + own_b * 4.0});
      CHECK(traffic.bytes() == (micro % 2 == 1 ? sent(24) : 0));
      CHECK((optimizer.step() == Stepped::kYes) == (micro % 2 == 1));
      optimizer.zero_grad();
    }
    CHECK(shared.item<double>() == doctest::Approx(-8.0 * mean_of_ranks()).epsilon(1e-14));
    CHECK(own_a.item<double>() == doctest::Approx(-4.0).epsilon(1e-14));
    CHECK(own_b.item<double>() == doctest::Approx(-8.0).epsilon(1e-14));
  }
}

TEST_CASE(
    "case 124: models that share parameters and take turns: what one reached early is there when the other closes") {
  Accelerator accelerator({.gradient_accumulation_steps = 2});
  Scalars scalars(3);
  const at::Tensor shared = scalars->p[0];
  const auto a = parameters({{"shared", shared}, {"own", scalars->p[1]}});
  const auto b = parameters({{"shared", shared}, {"own", scalars->p[2]}});
  torch::optim::SGD sgd(scalars->parameters(), 1.0);
  auto optimizer = std::get<2>(accelerator.prepare(a, b, sgd));
  for (int window = 1; window <= 2; ++window) {
    for (int micro = 0; micro < 2; ++micro) {
      {
        const auto guard = accelerator.accumulate(a);
        accelerator.backward(shared * mine() + scalars->p[1] * 2.0);
        CHECK(optimizer.step() == Stepped::kNo);
        optimizer.zero_grad();
      }
      const auto guard = accelerator.accumulate(b);
      // The micro-batch that closes b's window does not reach the shared parameter on any rank.
      accelerator.backward(micro == 0 ? shared * (4.0 * mine()) + scalars->p[2] * 6.0 : scalars->p[2] * 6.0);
      CHECK((optimizer.step() == Stepped::kYes) == (micro == 1));
      optimizer.zero_grad();
    }
    CHECK(shared.item<double>() == -3.0 * window * mean_of_ranks());
    CHECK(scalars->p[1].item<double>() == -2.0 * window);
    CHECK(scalars->p[2].item<double>() == -6.0 * window);
    CHECK(same_on_all_ranks(shared));
  }
}

TEST_CASE("case 114: parameters frozen and thawed after prepare are equal to one process at every boundary") {
  Accelerator accelerator({.gradient_accumulation_steps = 2});
  Scalars scalars(3);
  torch::optim::SGD sgd(scalars->parameters(), 1.0);
  auto [model, optimizer] = accelerator.prepare(scalars, sgd);
  Traffic traffic(accelerator);
  double expected = 0.0;
  for (int window = 0; window < 6; ++window) {
    const bool frozen = window == 2 || window == 3;
    scalars->p[1].set_requires_grad(!frozen);
    for (int micro = 0; micro < 2; ++micro) {
      const auto guard = accelerator.accumulate(model);
      accelerator.backward(scalars->p[0] * mine() + scalars->p[1] * (2.0 * mine()) + scalars->p[2] * 3.0);
      optimizer.step();
      CHECK(traffic.bytes() == (micro == 1 ? sent(frozen ? 8 : 12) : 0));
      optimizer.zero_grad();
    }
    if (!frozen) expected -= 2.0 * mean_of_ranks();
    CHECK(scalars->p[0].item<double>() == -(window + 1.0) * mean_of_ranks());
    CHECK(scalars->p[1].item<double>() == expected);
    CHECK(scalars->p[2].item<double>() == -3.0 * (window + 1.0));
    for (const auto& p : scalars->p) CHECK(same_on_all_ranks(p));
  }
}

TEST_CASE("case 114: a parameter that was frozen at prepare is reduced once it is thawed") {
  Accelerator accelerator;
  Scalars scalars(2);
  scalars->p[0].set_requires_grad(false);
  torch::optim::SGD sgd(scalars->parameters(), 1.0);
  auto [model, optimizer] = accelerator.prepare(scalars, sgd);
  for (int window = 0; window < 3; ++window) {
    if (window == 1) scalars->p[0].set_requires_grad(true);
    const auto guard = accelerator.accumulate(model);
    accelerator.backward(scalars->p[0] * mine() + scalars->p[1] * (2.0 * mine()));
    optimizer.step();
    optimizer.zero_grad();
  }
  CHECK(scalars->p[0].item<double>() == -2.0 * mean_of_ranks());
  CHECK(scalars->p[1].item<double>() == -6.0 * mean_of_ranks());
}

TEST_CASE("replaced parameters are noticed at the next window, and refresh takes them in") {
  Accelerator accelerator;
  Probe probe;
  torch::optim::SGD sgd(probe->parameters(), 1.0);
  auto [model, optimizer] = accelerator.prepare(probe, sgd);
  probe->replace(10.0 + rank());
  if (ranks() > 1) CHECK(contains(error_text<UsageError>([&] { (void)accelerator.accumulate(probe); }), "refresh"));
  optimizer.param_groups()[0].params() = probe->parameters();
  accelerator.refresh(probe);
  CHECK(probe->value() == 10.0);  // rank 0's
  const auto guard = accelerator.accumulate(probe);
  accelerator.backward(probe->loss({mine()}));
  CHECK(optimizer.step() == Stepped::kYes);
  CHECK(probe->value() == 10.0 - mean_of_ranks());
}

TEST_CASE("tensors added to a list of parameters are trained after refresh") {
  Accelerator accelerator({.gradient_accumulation_steps = 2});
  const at::Tensor first = at::full({}, 0.0).requires_grad_(true);
  const auto list = parameters({{"first", first}});
  torch::optim::SGD sgd({first}, 1.0);
  auto optimizer = std::get<1>(accelerator.prepare(list, sgd));
  const auto train = [&](const at::Tensor& loss) {
    const auto guard = accelerator.accumulate(list);
    accelerator.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
  };
  train(first * mine());
  const at::Tensor second = at::full({}, rank() + 1.0).requires_grad_(true);
  list.tensors().push_back({"second", second});
  optimizer->param_groups()[0].params().push_back(second);
  accelerator.refresh(list);  // inside a window, which stays
  CHECK(accelerator.pending_micro_batches(list) == 1);
  CHECK(second.item<double>() == 1.0);
  train(first * mine() + second * (4.0 * mine()));
  CHECK(first.item<double>() == -mean_of_ranks());
  CHECK(second.item<double>() == 1.0 - 2.0 * mean_of_ranks());
}

TEST_CASE("a model without trainable parameters can be prepared and guarded") {
  Accelerator accelerator({.gradient_accumulation_steps = 2});
  Probe frozen(2.0);
  frozen->w.set_requires_grad(false);
  Probe trained;
  torch::optim::SGD sgd(trained->parameters(), 1.0);
  auto [f, t, optimizer] = accelerator.prepare(frozen, trained, sgd);
  Traffic traffic(accelerator);
  for (int micro = 0; micro < 2; ++micro) {
    const auto guard = accelerator.accumulate(f, t);
    accelerator.backward(f->w * t->loss({mine()}));
    optimizer.step();
  }
  CHECK(traffic.bytes() == sent(4));
  CHECK(trained->value() == -2.0 * mean_of_ranks());
  CHECK(frozen->value() == 2.0);
}
