#pragma once

// What the digit examples share: flags, data, the network and its schedule. They differ in their loops alone.

#include <accel/data.hpp>
#include <accel/digits.hpp>

#include <torch/torch.h>
#include <CLI/CLI.hpp>

#include <cstdint>
#include <cstdlib>
#include <string>

namespace digits {

using Batch = torch::data::Example<>;
using Loader = accel::DataLoader<Batch>;

struct Flags {
  std::int64_t epochs = 10;
  std::int64_t gradient_accumulation_steps = 2;
  std::int64_t batch_size = 8;
  std::uint64_t seed = 1;
  double learning_rate = 3e-3;
  std::int64_t limit = 0;
  std::string save;
};

inline Flags read_flags(int argc, char** argv, const std::string& what) {
  Flags flags;
  CLI::App app(what);
  app.add_option("--epochs", flags.epochs, "passes over the training digits")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  app.add_option("-n,--gradient-accumulation-steps", flags.gradient_accumulation_steps,
                 "micro-batches of an optimizer step")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  app.add_option("--batch-size", flags.batch_size, "digits of a micro-batch on one rank")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  app.add_option("--seed", flags.seed, "of the first weights and of the order of digits")->capture_default_str();
  app.add_option("--learning-rate", flags.learning_rate, "of the first step; it falls to 0")->capture_default_str();
  app.add_option("--limit", flags.limit, "use only so many batches of the training digits; 0: all")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  app.add_option("--save", flags.save, "file for the trained weights");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    std::exit(app.exit(e));
  }
  return flags;
}

/// Two convolutions and two linear layers, 52,138 parameters.
struct NetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) {
    x = torch::max_pool2d(torch::relu(conv1(x)), 2);
    x = torch::max_pool2d(torch::relu(conv2(x)), 2);
    return fc2(torch::relu(fc1(x.flatten(1))));
  }

  torch::nn::Conv2d conv1 = register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 8, 3).padding(1)));
  torch::nn::Conv2d conv2 = register_module("conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 16, 3).padding(1)));
  torch::nn::Linear fc1 = register_module("fc1", torch::nn::Linear(16 * 7 * 7, 64));
  torch::nn::Linear fc2 = register_module("fc2", torch::nn::Linear(64, accel::Digits::kClasses));
};
TORCH_MODULE(Net);

inline torch::Tensor loss_of(Net& net, const Batch& batch) {
  return torch::nn::functional::cross_entropy(net->forward(batch.data), batch.target);
}

/// How many digits of the batch the network names right: an int64 scalar on its device.
inline torch::Tensor correct_in(Net& net, const Batch& batch) {
  return net->forward(batch.data).argmax(1).eq(batch.target).sum();
}

inline Loader train_loader(const Flags& flags) {
  const auto digits = static_cast<std::size_t>(flags.limit * flags.batch_size);
  return accel::make_data_loader(accel::Digits(accel::DigitsSplit::kTrain, {.at_most = digits}),
                                 {.batch_size = flags.batch_size, .shuffle = true, .seed = flags.seed});
}

/// Every test digit exactly once, on however many ranks.
inline Loader test_loader() {
  return accel::make_data_loader(accel::Digits(accel::DigitsSplit::kTest), {.batch_size = 100, .even_batches = false});
}

/// Optimizer steps of the whole training, when `batches` are dealt to `ranks`.
inline std::int64_t total_steps(const Flags& flags, std::size_t batches, int ranks) {
  const auto ceil_div = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
  const std::int64_t micro_batches = ceil_div(static_cast<std::int64_t>(batches), ranks);
  return flags.epochs * ceil_div(micro_batches, flags.gradient_accumulation_steps);
}

/// A schedule is any object with step(): here a straight line down to 0.
class LinearDecay {
 public:
  LinearDecay(torch::optim::Optimizer& optimizer, std::int64_t steps)
      : optimizer_(optimizer), steps_(steps), first_(optimizer.param_groups().front().options().get_lr()) {}

  void step() {
    const double left = 1.0 - static_cast<double>(++done_) / static_cast<double>(steps_);
    for (auto& group : optimizer_.param_groups()) group.options().set_lr(first_ * std::max(left, 0.0));
  }

 private:
  torch::optim::Optimizer& optimizer_;
  std::int64_t steps_;
  std::int64_t done_ = 0;
  double first_;
};

}  // namespace digits
