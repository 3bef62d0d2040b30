// The training of make.py with accel: the losses and weights that Python's DistributedDataParallel and Accelerate have.

#include "support/torch_doctest.hpp"

#include <accel/accelerator.hpp>

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor.h>
#include <torch/data/datasets/tensor.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace {

constexpr std::int64_t kFeatures = 8;
constexpr std::int64_t kHidden = 16;
constexpr std::int64_t kClasses = 4;
constexpr std::int64_t kBatch = 4;
constexpr double kTolerance = 1e-5;

// As in make.py.
class Generator {
 public:
  explicit Generator(std::uint64_t seed) : state_(seed) {}
  std::int64_t bits() {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::int64_t>(state_ >> 40);
  }
  float between_minus_one_and_one() { return static_cast<float>(bits()) / 8388608.0F - 1.0F; }

 private:
  std::uint64_t state_;
};

struct NetImpl : torch::nn::Module {
  NetImpl() {
    const torch::NoGradGuard no_grad;
    Generator generator(1);
    for (const at::Tensor& parameter : parameters()) {
      auto* values = parameter.data_ptr<float>();
      std::generate_n(values, parameter.numel(), [&] { return generator.between_minus_one_and_one() / 2.0F; });
    }
  }
  at::Tensor forward(const at::Tensor& features) { return second(at::tanh(first(features))); }

  torch::nn::Linear first = register_module("first", torch::nn::Linear(kFeatures, kHidden));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(kHidden, kClasses));
};

// Rows in the order of make.py, as a map-style data set.
class Rows {
 public:
  explicit Rows(std::size_t count) {
    Generator generator(2);
    for (std::size_t row = 0; row < count; ++row) {
      for (std::int64_t column = 0; column < kFeatures; ++column)
        features_.push_back(generator.between_minus_one_and_one());
      classes_.push_back(generator.bits() % kClasses);
    }
  }
  [[nodiscard]] std::optional<std::size_t> size() const { return classes_.size(); }
  [[nodiscard]] std::pair<at::Tensor, at::Tensor> get_batch(c10::ArrayRef<std::size_t> rows) const {
    std::vector<float> features;
    std::vector<std::int64_t> classes;
    for (const std::size_t row : rows) {
      const auto begin = features_.begin() + static_cast<std::ptrdiff_t>(row) * kFeatures;
      features.insert(features.end(), begin, begin + kFeatures);
      classes.push_back(classes_[row]);
    }
    return {at::tensor(features).view({-1, kFeatures}), at::tensor(classes)};
  }

 private:
  std::vector<float> features_;
  std::vector<std::int64_t> classes_;
};

struct Run {
  std::string name;
  std::string optimizer;
  int ranks = 0;
  std::int64_t steps = 0;
  std::int64_t micro_batches = 0;
  std::int64_t epochs = 0;
  std::vector<std::vector<double>> losses;  // of each rank
  std::vector<double> weights;
};

std::vector<Run> golden_runs(int ranks) {
  std::ifstream file(ACCEL_GOLDEN_FILE);
  const auto golden = nlohmann::json::parse(file);
  std::vector<Run> runs;
  for (const auto& run : golden.at("runs")) {
    if (run.at("ranks") != ranks) continue;
    const auto text = [&](const char* key) { return run.at(key).get<std::string>(); };
    runs.push_back({.name = text("shape") + ", " + text("optimizer"),
                    .optimizer = text("optimizer"),
                    .ranks = ranks,
                    .steps = run.at("gradient_accumulation_steps"),
                    .micro_batches = run.at("micro_batches"),
                    .epochs = run.at("epochs"),
                    .losses = run.at("losses"),
                    .weights = run.at("weights")});
  }
  REQUIRE(runs.size() == 6);
  return runs;
}

std::shared_ptr<torch::optim::Optimizer> optimizer_of(const Run& run, const std::vector<at::Tensor>& parameters) {
  if (run.optimizer == "sgd")
    return std::make_shared<torch::optim::SGD>(parameters, torch::optim::SGDOptions(0.1).momentum(0.9));
  return std::make_shared<torch::optim::AdamW>(parameters, torch::optim::AdamWOptions(0.01).weight_decay(0.01));
}

struct Outcome {
  std::vector<double> losses;
  std::vector<double> weights;
  std::int64_t optimizer_steps = 0;
};

Outcome train(const Run& run, const accel::AcceleratorOptions& base) {
  accel::AcceleratorOptions options = base;
  options.gradient_accumulation_steps = run.steps;
  accel::Accelerator accelerator(options);
  auto net = std::make_shared<NetImpl>();
  const auto rows = static_cast<std::size_t>(kBatch * run.micro_batches * run.ranks);
  auto [model, optimizer, loader] = accelerator.prepare(net, optimizer_of(run, net->parameters()),
                                                        accel::make_data_loader(Rows(rows), {.batch_size = kBatch}));
  Outcome outcome;
  for (std::int64_t epoch = 0; epoch < run.epochs; ++epoch)
    for (auto& [features, classes] : loader) {
      const auto micro = accelerator.accumulate(model);
      const at::Tensor loss = at::cross_entropy_loss(model->forward(features), classes);
      accelerator.backward(loss);
      if (optimizer.step() == accel::Stepped::kYes) ++outcome.optimizer_steps;
      optimizer.zero_grad();
      outcome.losses.push_back(loss.item<double>());
    }
  for (const at::Tensor& parameter : net->parameters()) {
    const float* values = parameter.data_ptr<float>();
    outcome.weights.insert(outcome.weights.end(), values, values + parameter.numel());
  }
  return outcome;
}

double largest_difference(const std::vector<double>& found, const std::vector<double>& expected) {
  REQUIRE(found.size() == expected.size());
  double largest = 0.0;
  for (std::size_t at = 0; at < found.size(); ++at) largest = std::max(largest, std::abs(found[at] - expected[at]));
  return largest;
}

void check(const Run& run, const accel::AcceleratorOptions& options) {
  CAPTURE(run.name);
  const Outcome outcome = train(run, options);
  const std::int64_t windows = (run.micro_batches + run.steps - 1) / run.steps;
  CHECK(outcome.optimizer_steps == windows * run.epochs);
  const auto rank = static_cast<std::size_t>(accel::process().rank);
  CHECK(largest_difference(outcome.losses, run.losses[rank]) < kTolerance);
  CHECK(largest_difference(outcome.weights, run.weights) < kTolerance);
}

}  // namespace

TEST_CASE("losses and weights are those of Python's DistributedDataParallel and Accelerate") {
  for (const Run& run : golden_runs(accel::process().size))
    check(run, {.tail_policy = accel::TailPolicy::kDivideByConfigured});
}

TEST_CASE("reducing at every micro-batch, or in many small buckets, changes none of the golden numbers") {
  for (const Run& run : golden_runs(accel::process().size)) {
    check(run, {.tail_policy = accel::TailPolicy::kDivideByConfigured, .sync_each_batch = true});
    check(run, {.tail_policy = accel::TailPolicy::kDivideByConfigured, .first_bucket_bytes = 64, .bucket_bytes = 256});
  }
}

TEST_CASE("dividing a short window by what it held gives other weights, and full windows the golden ones") {
  for (const Run& run : golden_runs(accel::process().size)) {
    CAPTURE(run.name);
    const Outcome outcome = train(run, {.tail_policy = accel::TailPolicy::kDivideByActual});
    const double difference = largest_difference(outcome.weights, run.weights);
    if (run.micro_batches % run.steps == 0)
      CHECK(difference < kTolerance);
    else
      CHECK(difference > 100.0 * kTolerance);
  }
}
