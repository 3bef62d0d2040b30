// The same samples give the same training, however they are dealt to ranks and micro-batches: compared with one process
// and one big batch, which every rank computes for itself without accel.
#include "support/probe.hpp"
#include "support/rank_expect.hpp"
#include "support/torch_doctest.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include <functional>

using namespace accel;
using namespace accel::test;

namespace {

constexpr int kSteps = 6;
constexpr int kSamples = 8;  // of one optimizer step, over all ranks and micro-batches

struct Mlp : torch::nn::Module {
  Mlp() { to(at::kDouble); }
  at::Tensor forward(const at::Tensor& x) { return second(at::tanh(first(x))); }
  at::Tensor loss(const at::Tensor& x, const at::Tensor& y) { return torch::nn::functional::mse_loss(forward(x), y); }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(6, 8));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(8, 3));
};

struct Data {
  at::Tensor x;
  at::Tensor y;
};

Data data_of_step(int step) {
  at::Generator generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(77 + step));
  const at::TensorOptions options(at::kDouble);
  return {at::randn({kSamples, 6}, generator, options), at::randn({kSamples, 3}, generator, options)};
}

using MakeOptimizer = std::function<std::shared_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>;

std::shared_ptr<torch::optim::Optimizer> momentum_sgd(std::vector<at::Tensor> parameters) {
  return std::make_shared<torch::optim::SGD>(std::move(parameters), torch::optim::SGDOptions(0.1).momentum(0.9));
}
std::shared_ptr<torch::optim::Optimizer> adamw(std::vector<at::Tensor> parameters) {
  return std::make_shared<torch::optim::AdamW>(std::move(parameters), torch::optim::AdamWOptions(0.05));
}

void train_alone(Mlp& net, torch::optim::Optimizer& optimizer) {
  for (int step = 0; step < kSteps; ++step) {
    const auto [x, y] = data_of_step(step);
    optimizer.zero_grad();
    net.loss(x, y).backward();
    optimizer.step();
  }
}

// The samples of a step are dealt out in micro-batches of `rows`, by turns to the ranks; `sums` trains on sums with
// items.
void train(Accelerator& accelerator, Mlp& net, Optimizer& optimizer, int rows, bool sums, bool last_given) {
  for (int step = 0; step < kSteps; ++step) {
    const auto [x, y] = data_of_step(step);
    const int micro_batches = kSamples / (rows * ranks());
    for (int micro = 0; micro < micro_batches; ++micro) {
      const auto guard = accelerator.accumulate(
          net, {.last = last_given ? std::optional(micro + 1 == micro_batches) : std::optional(false)});
      const int from = (micro * ranks() + rank()) * rows;
      const at::Tensor loss = net.loss(x.narrow(0, from, rows), y.narrow(0, from, rows));
      if (sums)
        accelerator.backward(loss * rows, {.items = rows});
      else
        accelerator.backward(loss);
      CHECK((optimizer.step() == Stepped::kYes) == (micro + 1 == micro_batches));
      optimizer.zero_grad();
    }
  }
}

double relative_difference(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).abs().max() / b.abs().max()).item<double>();
}

struct Way {
  int rows = 2;                 // of a micro-batch on one rank
  std::int64_t steps_more = 0;  // n above what the data has: then `.last` closes
  bool sums = false;
  AcceleratorOptions options = {};
};

void check_equal(const MakeOptimizer& make, const Way& way) {
  at::manual_seed(3);
  Mlp reference;
  const auto reference_optimizer = make(reference.parameters());
  at::manual_seed(3);
  Mlp net;
  AcceleratorOptions options = way.options;
  options.gradient_accumulation_steps = kSamples / (way.rows * ranks()) + way.steps_more;
  Accelerator accelerator(options);
  auto [model, optimizer] = accelerator.prepare(net, make(net.parameters()));
  train_alone(reference, *reference_optimizer);
  train(accelerator, model, optimizer, way.rows, way.sums, way.steps_more > 0);
  const auto expected = reference.named_parameters();
  for (const auto& item : net.named_parameters()) {
    CAPTURE(item.key());
    CHECK(relative_difference(item.value(), expected[item.key()]) < 1e-6);
    CHECK(same_on_all_ranks(item.value()));
  }
}

}  // namespace

TEST_CASE("1 x 4, 2 x 2 and 4 x 1 micro-batches train as one big batch does") {
  for (const auto& make : {momentum_sgd, adamw}) {
    check_equal(make, {.rows = 2});
    check_equal(make, {.rows = 1});
    check_equal(make, {.rows = 2, .options = {.first_bucket_bytes = 100, .bucket_bytes = 200}});
  }
}

TEST_CASE("one big batch on every rank, without accumulation") {
  for (const auto& make : {momentum_sgd, adamw}) check_equal(make, {.rows = kSamples / ranks()});
}

TEST_CASE("windows that are always short, summed losses, and a sync at each micro-batch") {
  for (const auto& make : {momentum_sgd, adamw}) {
    check_equal(make, {.rows = 1, .steps_more = 3});
    check_equal(make, {.rows = 2, .sums = true});
    check_equal(make, {.rows = 1, .steps_more = 3, .sums = true});
    check_equal(make, {.rows = 1, .options = {.sync_each_batch = true}});
    check_equal(make, {.rows = 1, .steps_more = 3, .options = {.sync_each_batch = true}});
    check_equal(make, {.rows = 1, .sums = true, .options = {.sync_each_batch = true}});
  }
}

TEST_CASE("a group of one on every rank gives the bits of plain LibTorch") {
  for (const auto& make : {momentum_sgd, adamw}) {
    at::manual_seed(rank());
    Mlp reference;
    at::manual_seed(rank());
    Mlp net;
    const auto by_hand = make(reference.parameters());
    Accelerator accelerator({.gradient_accumulation_steps = 3, .group = Group()});
    CHECK(accelerator.num_processes() == 1);
    auto [model, optimizer] = accelerator.prepare(net, make(net.parameters()));
    for (int micro = 0; micro < 9; ++micro) {
      const auto [x, y] = data_of_step(micro);
      (reference.loss(x, y) / 3).backward();
      if (micro % 3 == 2) {
        by_hand->step();
        by_hand->zero_grad();
      }
      const auto guard = accelerator.accumulate(model, {.last = false});
      accelerator.backward(net.loss(x, y));
      optimizer.step();
      optimizer.zero_grad();
    }
    const auto expected = reference.named_parameters();
    for (const auto& item : net.named_parameters()) CHECK(at::equal(item.value(), expected[item.key()]));
  }
}
