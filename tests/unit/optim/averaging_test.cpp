#include "support/probe.hpp"
#include "support/rank_expect.hpp"
#include "support/torch_doctest.hpp"

#include <accel/averaging.hpp>
#include <accel/error.hpp>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/serialize.h>

#include <cmath>
#include <sstream>

using namespace accel;
using namespace accel::test;

TEST_CASE("polyak_update moves parameters by tau, in place, and leaves the source alone") {
  Probe target(8.0);
  Probe source(0.0);
  const at::Tensor before = target->w;
  polyak_update(target, source, 0.25);
  CHECK(target->value() == 6.0);
  polyak_update(target, source, 0.25);
  CHECK(target->value() == 4.5);
  CHECK(source->value() == 0.0);
  CHECK(target->w.is_same(before));
  polyak_update(target, source, 0.0);
  CHECK(target->value() == 4.5);
  polyak_update(target, source, 1.0);
  CHECK(target->value() == 0.0);
  CHECK_FALSE(target->w.grad().defined());
}

TEST_CASE("polyak_update copies buffers and takes every dtype") {
  torch::nn::BatchNorm1d target(2);
  torch::nn::BatchNorm1d source(2);
  source->running_mean.fill_(4.0);
  source->num_batches_tracked.fill_(7);
  polyak_update(target, source, 0.5);
  CHECK((target->running_mean == 4.0).all().item<bool>());
  CHECK(target->num_batches_tracked.item<std::int64_t>() == 7);

  const auto all_dtypes = [](double value) {
    return parameters({{"double", at::full({2}, value, at::kDouble)},
                       {"half", at::full({2}, value, at::kHalf)},
                       {"brain", at::full({2}, value, at::kBFloat16)},
                       {"complex", at::full({2}, c10::complex<double>(value, -value), at::kComplexDouble)},
                       {"whole", at::full({2}, value, at::kLong)}});
  };
  const NamedParameters to = all_dtypes(8.0);
  polyak_update(to, all_dtypes(4.0), 0.5);
  for (const auto& [name, tensor] : to.tensors()) {
    INFO(name);
    // Whole numbers have no way between: they are copied.
    const bool whole = name == std::string_view("whole");
    const double expected = whole ? 4.0 : 6.0;
    CHECK(at::real(tensor.to(at::kComplexDouble))[0].item<double>() == expected);
  }
}

TEST_CASE("polyak_update refuses other models and other weights, and changes nothing") {
  Probe probe(1.0);
  Probe other(2.0);
  Scalars scalars(1);
  CHECK(contains(error_text<UsageError>([&] { polyak_update(probe, other, 1.5); }), "tau in [0, 1], found 1.5"));
  CHECK(contains(error_text<UsageError>([&] { polyak_update(probe, other, NAN); }), "tau in [0, 1], found nan"));
  CHECK(contains(error_text<UsageError>([&] { polyak_update(probe, scalars, 0.5); }), "'p0'"));
  CHECK(contains(error_text<UsageError>([&] { polyak_update(Scalars(2), Scalars(1), 0.5); }), "number 2 is none"));
  CHECK(contains(error_text<UsageError>([&] { polyak_update(probe, Probe(0.0, at::kDouble), 0.5); }), "Double"));
  CHECK(probe->value() == 1.0);
}

TEST_CASE("an average follows its model: exact numbers, every k-th call, buffers copied") {
  Probe probe(0.0, at::kDouble);
  Ema average = ema(probe, {.decay = 0.75});
  CHECK(average.parameters().front().name == std::string("w"));
  const auto value = [&] { return average.parameters().front().tensor.item<double>(); };
  const auto set = [&](double to) { probe->w.detach().fill_(to); };
  set(4.0);
  average.update();
  CHECK(value() == 1.0);
  average.update();
  CHECK(value() == 1.75);
  CHECK(average.updates() == 2);
  CHECK(probe->value() == 4.0);
  average.reset();
  CHECK(value() == 4.0);
  CHECK(average.updates() == 0);

  Ema seldom = ema(probe, {.decay = 0.5, .update_every = 3});
  set(0.0);
  const double expected[] = {4.0, 4.0, 2.0, 2.0, 2.0, 1.0};
  for (const double each : expected) {
    seldom.update();
    CHECK(seldom.parameters().front().tensor.item<double>() == each);
  }
  CHECK(seldom.updates() == 2);

  torch::nn::BatchNorm1d norm(1);
  Ema with_buffers = ema(norm, {.decay = 0.5});
  norm->running_mean.fill_(3.0);
  with_buffers.update();
  CHECK(with_buffers.buffers().front().tensor.item<double>() == 3.0);
}

TEST_CASE("warmup lets the average begin faster") {
  Probe probe;
  Ema average = ema(probe, {.decay = 0.5, .warmup = true});
  const double expected[] = {1.0 / 10, 2.0 / 11, 3.0 / 12, 4.0 / 13, 5.0 / 14, 6.0 / 15, 7.0 / 16, 8.0 / 17, 0.5, 0.5};
  for (const double decay : expected) {
    CHECK(average.decay() == doctest::Approx(decay).epsilon(1e-12));
    average.update();
  }
}

TEST_CASE("apply: the model has the average in the scope, and its own weights after it, also after an exception") {
  Probe probe(1.0);
  Ema average = ema(probe, {.decay = 0.5});
  probe->w.detach().fill_(3.0);
  {
    const auto averaged = average.apply();
    CHECK(probe->value() == 1.0);
    CHECK(contains(error_text<UsageError>([&] { average.update(); }), "apply() guard"));
    CHECK(contains(error_text<UsageError>([&] { (void)average.apply(); }), "apply() guard"));
    CHECK(contains(error_text<UsageError>([&] { average.reset(); }), "apply() guard"));
    CHECK(average.parameters().front().tensor.item<double>() == 1.0);
    std::stringstream archive;
    torch::save(average, archive);
  }
  CHECK(probe->value() == 3.0);
  CHECK_THROWS_AS(
      [&] {
        const auto averaged = average.apply();
        throw std::runtime_error("in evaluation");
      }(),
      std::runtime_error);
  CHECK(probe->value() == 3.0);
  average.update();
  CHECK(average.parameters().front().tensor.item<double>() == 2.0);
  Probe other;
  average.copy_to(other);
  CHECK(other->value() == 2.0);
}

TEST_CASE("a tied weight is averaged, moved and put back once") {
  struct Tied : torch::nn::Module {
    Tied() : w(register_parameter("w", at::full({1}, 8.0))) { register_parameter("again", w); }
    at::Tensor w;
  };
  auto model = std::make_shared<Tied>();
  CHECK(ModelRef(model).parameters().size() == 2);
  Ema average = ema(model, {.decay = 0.5});
  CHECK(average.parameters().size() == 1);
  model->w.detach().fill_(4.0);
  average.update();
  model->w.detach().fill_(2.0);
  {
    const auto averaged = average.apply();
    CHECK(model->w.item<double>() == 6.0);
  }
  CHECK(model->w.item<double>() == 2.0);
  CHECK(average.parameters().front().tensor.item<double>() == 6.0);
  auto target = std::make_shared<Tied>();
  polyak_update(target, model, 0.5);
  CHECK(target->w.item<double>() == 5.0);
}

TEST_CASE("tensors replaced under an apply guard stay as they are, and the earlier ones come back") {
  const at::Tensor first = at::full({2}, 1.0).requires_grad_(true);
  NamedParameters list = parameters({{"a", first}});
  Ema average = ema(list, {.decay = 0.5});
  first.detach().fill_(3.0);
  {
    const auto averaged = average.apply();
    list.tensors()[0].tensor = at::full({3}, 7.0).requires_grad_(true);
  }
  CHECK((first == 3.0).all().item<bool>());
  CHECK((list.tensors()[0].tensor == 7.0).all().item<bool>());
}

TEST_CASE("averages of 16-bit weights take steps that the weights themselves could not") {
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    Probe probe(1.0, type);
    Ema average = ema(probe, {.decay = 0.999});
    probe->w.detach().fill_(2.0);
    for (int call = 0; call < 1000; ++call) average.update();
    const double value = average.parameters().front().tensor.item<double>();
    CHECK(value == doctest::Approx(2.0 - std::pow(0.999, 1000)).epsilon(1e-4));
    const auto averaged = average.apply();
    CHECK(probe->value() == doctest::Approx(value).epsilon(4e-3));
    CHECK((probe->w.scalar_type() == type));
  }
}

TEST_CASE("an average says when its model is another one by now, and can begin anew") {
  NamedParameters list = parameters({{"a", at::zeros({2}).requires_grad_(true)}});
  Ema average = ema(list);
  list.tensors()[0].tensor = at::ones({3}).requires_grad_(true);
  CHECK(contains(error_text<UsageError>([&] { average.update(); }), "call reset() after tensors"));
  CHECK(contains(error_text<UsageError>([&] { (void)average.apply(); }), "'a' [3]"));
  average.reset();
  average.update();
  CHECK((average.parameters().front().tensor == 1.0).all().item<bool>());
  CHECK(contains(error_text<UsageError>([&] { (void)ema(list, {.decay = 1.0}); }), "decay in [0, 1), found 1"));
  CHECK(contains(error_text<UsageError>([&] { (void)ema(list, {.update_every = 0}); }), "update_every >= 1"));
}

TEST_CASE("torch::save and torch::load of an average") {
  torch::nn::Sequential net(torch::nn::Linear(2, 2), torch::nn::BatchNorm1d(2));
  Ema average = ema(net, {.decay = 0.5, .warmup = true, .update_every = 2});
  for (const auto& parameter : net->parameters()) parameter.detach().add_(1.0);
  for (int call = 0; call < 3; ++call) average.update();
  std::stringstream archive;
  torch::save(average, archive);
  Ema loaded = ema(net, {.decay = 0.5, .warmup = true, .update_every = 2});
  torch::load(loaded, archive);
  CHECK(loaded.updates() == 1);
  for (std::size_t at = 0; at < average.parameters().size(); ++at)
    CHECK(at::equal(loaded.parameters()[at].tensor, average.parameters()[at].tensor));
  loaded.update();  // the second of two calls
  CHECK(loaded.updates() == 2);

  std::stringstream again;
  torch::save(average, again);
  Probe probe;
  Ema of_another = ema(probe);
  CHECK(contains(error_text<UsageError>([&] { torch::load(of_another, again); }), "load an archive of the same model"));
  CHECK(of_another.parameters().front().tensor.item<double>() == 0.0);
  std::stringstream foreign;
  torch::save(at::zeros({1}), foreign);
  CHECK(
      contains(error_text<UsageError>([&] { torch::load(of_another, foreign); }), "expected an archive of an average"));
  std::stringstream larger;
  torch::save(average, larger);
  torch::nn::Sequential part(torch::nn::Linear(2, 2));
  Ema of_part = ema(part);
  CHECK(contains(error_text<UsageError>([&] { torch::load(of_part, larger); }), "found in the target none"));
}
