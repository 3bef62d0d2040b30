// What one round of reduction has to get right, whatever the model, the loss and the buckets look like.
#include "support/probe.hpp"
#include "support/rank_expect.hpp"
#include "support/torch_doctest.hpp"

#include <accel/error.hpp>

#include <ATen/Functions.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include <functional>

using namespace accel;
using namespace accel::test;

namespace {

/// Runs `part` without a graph and again in backward, in a backward of its own: activation checkpointing.
struct Checkpoint : torch::autograd::Function<Checkpoint> {
  using Part = std::function<at::Tensor(const at::Tensor&)>;

  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input, const Part* part) {
    context->save_for_backward({input});
    context->saved_data["part"] = reinterpret_cast<std::int64_t>(part);
    const at::NoGradGuard no_grad;
    return (*part)(input);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const c10::AutoGradMode enable(true);
    const auto* part = reinterpret_cast<const Part*>(context->saved_data["part"].toInt());
    const at::Tensor input = context->get_saved_variables()[0].detach().requires_grad_(true);
    torch::autograd::backward({(*part)(input)}, {gradients[0]});
    return {input.grad(), at::Tensor()};
  }
};

struct Mixed : torch::nn::Module {
  at::Tensor single = register_parameter("single", at::zeros({3}, at::kFloat));
  at::Tensor half = register_parameter("half", at::zeros({4}, at::kBFloat16));
  at::Tensor wide = register_parameter("wide", at::zeros({2, 2}, at::kDouble));
  [[nodiscard]] at::Tensor loss(double x) const {
    return (single * x).sum() + (half * (2.0 * x)).sum().to(at::kFloat) + (wide * (3.0 * x)).sum().to(at::kFloat);
  }
};

/// Six parameters of sizes that fill buckets unevenly; the gradient of each element of the k-th is (k + 1) x.
struct Uneven : torch::nn::Module {
  Uneven() {
    const std::vector<std::int64_t> sizes{5, 1, 7, 0, 2, 3};
    for (std::size_t k = 0; k < sizes.size(); ++k)
      p.push_back(register_parameter("p" + std::to_string(k), at::zeros({sizes[k]}, at::kFloat)));
  }
  [[nodiscard]] at::Tensor loss(double x) const {
    at::Tensor sum = at::zeros({});
    for (std::size_t k = 0; k < p.size(); ++k) sum = sum + (p[k] * (x * (static_cast<double>(k) + 1.0))).sum();
    return sum;
  }
  std::vector<at::Tensor> p;
};

bool all_are(const at::Tensor& tensor, double value) {
  return tensor.defined() && (tensor == value).all().item<bool>();
}

}  // namespace

TEST_CASE("case 16: a parameter used early in the window is reduced") {
  Accelerator accelerator({.gradient_accumulation_steps = 2});
  Scalars scalars(2);
  accelerator.prepare(scalars);
  const double r = mine();
  {
    const auto guard = accelerator.accumulate(scalars);
    accelerator.backward(scalars->p[0] * r);
    CHECK(differs_between_ranks(scalars->p[0].grad()));
  }
  {
    const auto guard = accelerator.accumulate(scalars);
    accelerator.backward(scalars->p[1] * (10.0 * r));
  }
  CHECK(gradient_of(scalars->p[0]) == mean_of_ranks() / 2.0);  // two ranks: 0.75
  CHECK(gradient_of(scalars->p[1]) == 10.0 * mean_of_ranks() / 2.0);
  CHECK(same_on_all_ranks(scalars->p[0].grad()));
}

TEST_CASE("case 16: used early on one rank only") {
  Accelerator accelerator({.gradient_accumulation_steps = 3});
  Scalars scalars(2);
  accelerator.prepare(scalars);
  for (int micro = 0; micro < 3; ++micro) {
    const auto guard = accelerator.accumulate(scalars);
    const bool uses = micro == 0 && rank() == ranks() - 1;
    accelerator.backward(uses ? scalars->p[0] * 6.0 + scalars->p[1] * 3.0 : scalars->p[1] * 3.0);
  }
  CHECK(gradient_of(scalars->p[0]) == doctest::Approx(2.0 / ranks()).epsilon(1e-6));
  CHECK(gradient_of(scalars->p[1]) == doctest::Approx(3.0).epsilon(1e-6));
}

TEST_CASE("case 111: the set of unused parameters changes between syncs and differs by rank") {
  for (const std::int64_t bucket_bytes : {std::int64_t{4}, std::int64_t{12}, std::int64_t{1} << 20}) {
    Accelerator accelerator({.first_bucket_bytes = bucket_bytes, .bucket_bytes = bucket_bytes});
    Scalars scalars(5);
    torch::optim::SGD sgd(scalars->parameters(), 1.0);
    auto [model, optimizer] = accelerator.prepare(scalars, sgd);
    std::vector<double> w(5, 0.0);
    for (int sync = 0; sync < 12; ++sync) {
      const auto uses = [sync](int r, int k) { return (7 * sync + 5 * r + 3 * k + sync * k) % 4 < 2 && k != sync % 5; };
      const auto x = [sync](int r, int k) { return 8.0 * (r + 1) + 4.0 * k + sync; };
      const auto guard = accelerator.accumulate(model);
      at::Tensor loss = at::zeros({}).requires_grad_(true) * 1.0;
      for (int k = 0; k < 5; ++k)
        if (uses(rank(), k)) loss = loss + scalars->p[static_cast<std::size_t>(k)] * x(rank(), k);
      accelerator.backward(loss);
      for (int k = 0; k < 5; ++k) {
        const at::Tensor& p = scalars->p[static_cast<std::size_t>(k)];
        bool used = false;
        for (int r = 0; r < ranks(); ++r) used = used || uses(r, k);
        const double expected = mean_over_ranks([&](int r) { return uses(r, k) ? x(r, k) : 0.0; });
        CHECK(p.grad().defined() == used);
        if (used) CHECK(gradient_of(p) == expected);
        CHECK(same_on_all_ranks(p.grad()));
        w[static_cast<std::size_t>(k)] -= expected;
      }
      optimizer.step();
      optimizer.zero_grad();
    }
    for (std::size_t k = 0; k < 5; ++k) CHECK(scalars->p[k].item<double>() == w[k]);
  }
}

TEST_CASE("case 85: a dead layer trains with the rest: no error, no gradient, no change") {
  struct Net : torch::nn::Module {
    torch::nn::Linear live = register_module("live", torch::nn::Linear(2, 1));
    torch::nn::Linear dead = register_module("dead", torch::nn::Linear(2, 1));
  };
  Accelerator accelerator({.gradient_accumulation_steps = 2});
  Net net;
  torch::optim::AdamW adamw(net.parameters(), torch::optim::AdamWOptions(0.1).weight_decay(0.5));
  auto [model, optimizer] = accelerator.prepare(net, adamw);
  const at::Tensor dead = net.dead->weight.detach().clone();
  const at::Tensor live = net.live->weight.detach().clone();
  for (int micro = 0; micro < 6; ++micro) {
    const auto guard = accelerator.accumulate(model);
    accelerator.backward(net.live(at::full({3, 2}, mine())).mean());
    if (guard.closes_window()) CHECK_FALSE(net.dead->weight.grad().defined());
    optimizer.step();
    optimizer.zero_grad();
  }
  CHECK(at::equal(net.dead->weight, dead));
  CHECK_FALSE(at::equal(net.live->weight, live));
  CHECK(same_on_all_ranks(net.live->weight));
}

TEST_CASE("case 115: AdamW leaves a parameter alone that nobody used, also with moments from before") {
  for (const bool used_before : {false, true}) {
    Accelerator accelerator;
    Scalars scalars(2, 1.0);
    torch::optim::AdamW adamw(scalars->parameters(), torch::optim::AdamWOptions(0.1).weight_decay(0.0));
    auto [model, optimizer] = accelerator.prepare(scalars, adamw);
    const auto train = [&accelerator, &s = scalars, &o = optimizer](const at::Tensor& loss) {
      const auto guard = accelerator.accumulate(s);
      accelerator.backward(loss);
      o.step();
      o.zero_grad();
    };
    if (used_before) train(scalars->p[0] * mine() + scalars->p[1] * mine());
    const at::Tensor before = scalars->p[1].detach().clone();
    for (int step = 0; step < 3; ++step) train(scalars->p[0] * mine());
    CHECK(at::equal(scalars->p[1], before));
    CHECK((before.item<double>() != 1.0) == used_before);
    // Used on one rank: it moves, on all of them alike.
    train(rank() == ranks() - 1 ? scalars->p[0] + scalars->p[1] : scalars->p[0] * 1.0);
    CHECK_FALSE(at::equal(scalars->p[1], before));
    CHECK(same_on_all_ranks(scalars->p[1]));
  }
}

TEST_CASE("case 89: gradients set to none or to zero between windows, by whomever, three steps long") {
  for (int way = 0; way < 4; ++way)
    for (const int n : {1, 2}) {
      Accelerator accelerator({.gradient_accumulation_steps = n});
      Uneven net;
      torch::optim::SGD sgd(net.parameters(), 1.0);
      auto [model, optimizer] = accelerator.prepare(net, sgd);
      for (int micro = 0; micro < 3 * n; ++micro) {
        const auto guard = accelerator.accumulate(model);
        accelerator.backward(net.loss(mine()));
        if (optimizer.step() == Stepped::kNo) continue;
        if (way == 0) optimizer.zero_grad();
        if (way == 1) optimizer->zero_grad(true);
        if (way == 2) net.zero_grad(true);
        if (way == 3) net.zero_grad(false);
      }
      CAPTURE(way);
      for (std::size_t k = 0; k < net.p.size(); ++k) {
        CHECK(all_are(net.p[k], -3.0 * mean_of_ranks() * (static_cast<double>(k) + 1.0)));
        CHECK(same_on_all_ranks(net.p[k]));
      }
    }
}

TEST_CASE("several dtypes in one model: exact sums, and exactly their bytes") {
  for (const std::int64_t bucket_bytes : {std::int64_t{1}, std::int64_t{1} << 20}) {
    Accelerator accelerator(
        {.gradient_accumulation_steps = 2, .first_bucket_bytes = bucket_bytes, .bucket_bytes = bucket_bytes});
    Mixed net;
    accelerator.prepare(net);
    Traffic traffic(accelerator);
    for (int window = 1; window <= 3; ++window) {
      for (int micro = 0; micro < 2; ++micro) {
        const auto guard = accelerator.accumulate(net);
        accelerator.backward(net.loss(mine() * window));
        const OperationStats since = traffic.take();
        CHECK(since.bytes == (micro == 1 ? sent(12 + 8 + 32) : 0));
        CHECK(since.calls == (micro == 1 ? sent(3) : 0));
      }
      CHECK(all_are(net.single.grad(), mean_of_ranks() * window));
      CHECK(all_are(net.half.grad(), 2.0 * mean_of_ranks() * window));
      CHECK(all_are(net.wide.grad(), 3.0 * mean_of_ranks() * window));
      CHECK((net.half.grad().scalar_type() == at::kBFloat16));
      net.zero_grad();
    }
  }
}

TEST_CASE("buckets of any size give the same gradients, and as many transfers as there are buckets") {
  struct Plan {
    std::int64_t first;
    std::int64_t bytes;
    std::uint64_t buckets;
  };
  // In order of readiness: 3, 2, 0, 7, 1, 5 floats.
  for (const Plan& plan : {Plan{1, 1, 6}, Plan{20, 32, 3}, Plan{12, 12, 5}, Plan{1 << 20, 1 << 20, 1}}) {
    Accelerator accelerator({.first_bucket_bytes = plan.first, .bucket_bytes = plan.bytes});
    Uneven net;
    accelerator.prepare(net);
    Traffic traffic(accelerator);
    for (int window = 1; window <= 3; ++window) {
      const auto guard = accelerator.accumulate(net);
      accelerator.backward(net.loss(mine() * window));
      const OperationStats since = traffic.take();
      CHECK(since.bytes == sent(18 * 4));
      if (window == 1) CHECK(since.calls == sent(plan.buckets));
      for (std::size_t k = 0; k < net.p.size(); ++k)
        CHECK(all_are(net.p[k].grad(), mean_of_ranks() * window * (static_cast<double>(k) + 1.0)));
      net.zero_grad();
    }
  }
}

TEST_CASE("a parameter that is used twice, or under two names, is reduced once") {
  struct Tied : torch::nn::Module {
    at::Tensor in = register_parameter("in", at::zeros({}, at::kFloat));
    at::Tensor out = register_parameter("out", in);
  };
  Accelerator accelerator({.gradient_accumulation_steps = 2});
  Tied net;
  accelerator.prepare(net);
  Traffic traffic(accelerator);
  for (int micro = 0; micro < 2; ++micro) {
    const auto guard = accelerator.accumulate(net);
    accelerator.backward(net.in * mine() + net.out * (2.0 * mine()) + net.in * 4.0);
  }
  CHECK(traffic.bytes() == sent(4));
  CHECK(gradient_of(net.in) == 3.0 * mean_of_ranks() + 4.0);
}

TEST_CASE("gradients that come in several times within one backward (activation checkpointing) are all in the sum") {
  for (const std::int64_t bucket_bytes : {std::int64_t{4}, std::int64_t{1} << 20})
    for (const bool on_one_rank : {false, true}) {
      Accelerator accelerator(
          {.gradient_accumulation_steps = 2, .first_bucket_bytes = bucket_bytes, .bucket_bytes = bucket_bytes});
      Scalars scalars(3, 2.0, at::kDouble);
      accelerator.prepare(scalars);
      const Checkpoint::Part part = [&scalars](const at::Tensor& x) { return scalars->p[0] * x * scalars->p[1]; };
      // loss = p0 x + p2 h with h = p1 p0 (p0 x p1) p1 ..., so p0 and p1 are reached inside and outside.
      const auto loss_of = [&](double x, bool checkpointed) {
        const auto apply = [&](const at::Tensor& in) { return checkpointed ? Checkpoint::apply(in, &part) : part(in); };
        const at::Tensor hidden = apply(scalars->p[0] * x);
        return apply(hidden) * scalars->p[2] + scalars->p[1] * x + scalars->p[0];
      };
      for (int window = 0; window < 3; ++window) {
        std::vector<double> expected(3, 0.0);
        for (int r = 0; r < ranks(); ++r)
          for (int micro = 0; micro < 2; ++micro) {
            const auto gradients = torch::autograd::grad({loss_of(one_more(r) + micro, false)},
                                                         {scalars->p[0], scalars->p[1], scalars->p[2]});
            for (std::size_t k = 0; k < 3; ++k) expected[k] += gradients[k].item<double>() / (2.0 * ranks());
          }
        for (int micro = 0; micro < 2; ++micro) {
          const auto guard = accelerator.accumulate(scalars);
          accelerator.backward(loss_of(mine() + micro, !on_one_rank || rank() == 0));
        }
        for (std::size_t k = 0; k < 3; ++k) {
          CHECK(gradient_of(scalars->p[k]) == doctest::Approx(expected[k]).epsilon(1e-12));
          CHECK(same_on_all_ranks(scalars->p[k].grad()));
        }
        scalars->zero_grad();
      }
    }
}

TEST_CASE("gradients are bitwise equal on all ranks after each sync, for sums that round") {
  Accelerator accelerator({.gradient_accumulation_steps = 3, .first_bucket_bytes = 64, .bucket_bytes = 256});
  torch::nn::Linear net(13, 7);
  accelerator.prepare(net);
  for (int window = 0; window < 3; ++window) {
    for (int micro = 0; micro < 3; ++micro) {
      at::manual_seed(static_cast<std::uint64_t>(100 * rank() + 10 * window + micro));
      const auto guard = accelerator.accumulate(net);
      accelerator.backward(net(at::randn({5, 13})).tanh().pow(2).mean());
      if (micro < 2) CHECK(differs_between_ranks(net->weight.grad()));
    }
    CHECK(same_on_all_ranks(net->weight.grad()));
    CHECK(same_on_all_ranks(net->bias.grad()));
    net->zero_grad();
  }
}

TEST_CASE("non-contiguous and transposed parameters keep their gradients' places") {
  Accelerator accelerator({.gradient_accumulation_steps = 2});
  const at::Tensor matrix = at::zeros({3, 2}).t().detach().requires_grad_(true);  // 2 x 3, column by column
  const auto list = parameters({{"matrix", matrix}});
  torch::optim::SGD sgd({matrix}, 1.0);
  auto optimizer = std::get<1>(accelerator.prepare(list, sgd));
  const at::Tensor x = at::arange(6, at::kFloat).reshape({2, 3});
  for (int micro = 0; micro < 4; ++micro) {
    const auto guard = accelerator.accumulate(list);
    accelerator.backward((matrix * x * mine()).sum());
    optimizer.step();
    optimizer.zero_grad();
  }
  CHECK(at::equal(matrix, x * (-2.0 * mean_of_ranks())));
}
