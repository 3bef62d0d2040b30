// What accel costs and gains in a small training loop, a line of JSON for each measurement:
//   accel_bench overhead               one process: accel's loop against the same loop in plain LibTorch
//   accel_bench throughput <steps>...  under mpirun: micro-batches a second, for peers/accelerate_mlp.py to compare
//   accel_bench memory <0|1>           under mpirun: the peak of a large model's training, 1: with sync_each_batch
//   accel_bench transformer <0|1>      milliseconds a micro-batch of a transformer, 0: in a plain LibTorch loop, 1:
//   accel

#include <accel/accelerator.hpp>
#include <accel/process.hpp>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/transformercoder.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2.0;
}

struct NetImpl : torch::nn::Module {
  NetImpl(std::int64_t features, std::int64_t hidden, std::int64_t classes)
      : first(register_module("first", torch::nn::Linear(features, hidden))),
        second(register_module("second", torch::nn::Linear(hidden, classes))) {}
  at::Tensor forward(const at::Tensor& features) { return second(at::relu(first(features))); }

  torch::nn::Linear first;
  torch::nn::Linear second;
};

struct Batch {
  at::Tensor features;
  at::Tensor classes;
};

std::vector<Batch> make_batches(std::int64_t count, std::int64_t rows, std::int64_t features, std::int64_t classes) {
  std::vector<Batch> batches;
  for (std::int64_t each = 0; each < count; ++each)
    batches.push_back({at::randn({rows, features}), at::randint(classes, {rows}, at::kLong)});
  return batches;
}

// 64-64-10, batches of 32, in memory: so small that what surrounds the arithmetic is seen.
std::shared_ptr<NetImpl> small_net() {
  at::manual_seed(0);
  return std::make_shared<NetImpl>(64, 64, 10);
}

std::vector<Batch> small_batches(int rank) {
  at::manual_seed(static_cast<std::uint64_t>(rank));
  return make_batches(64, 32, 64, 10);
}

torch::optim::SGDOptions sgd_options() {
  return torch::optim::SGDOptions(0.01).momentum(0.9);
}

at::Tensor loss_of(NetImpl& net, const Batch& batch) {
  return at::cross_entropy_loss(net.forward(batch.features), batch.classes);
}

void bare_loop(NetImpl& net, torch::optim::SGD& optimizer, torch::optim::StepLR& scheduler,
               const std::vector<Batch>& batches) {
  for (const Batch& batch : batches) {
    const at::Tensor loss = loss_of(net, batch);
    loss.backward();
    optimizer.step();
    scheduler.step();
    optimizer.zero_grad();
  }
}

void accel_loop(accel::Accelerator& accelerator, NetImpl& net, accel::Optimizer& optimizer, accel::Scheduler& scheduler,
                const std::vector<Batch>& batches) {
  for (const Batch& batch : batches) {
    const auto micro = accelerator.accumulate(net);
    const at::Tensor loss = loss_of(net, batch);
    accelerator.backward(loss);
    optimizer.step();
    scheduler.step();
    optimizer.zero_grad();
  }
}

// Blocks of the two loops alternate, so that what else the machine does meets both; each block is about 10 ms.
void overhead() {
  constexpr int kPairs = 301;
  const std::vector<Batch> batches = small_batches(0);
  const auto micro_batches = static_cast<double>(batches.size());

  auto bare_net = small_net();
  torch::optim::SGD bare_sgd(bare_net->parameters(), sgd_options());
  torch::optim::StepLR bare_schedule(bare_sgd, 1000, 0.99);

  accel::Accelerator accelerator;
  auto net = small_net();
  torch::optim::SGD plain_sgd(net->parameters(), sgd_options());
  torch::optim::StepLR schedule(plain_sgd, 1000, 0.99);
  auto prepared = accelerator.prepare(*net, plain_sgd, schedule);
  accel::Optimizer& optimizer = std::get<1>(prepared);
  accel::Scheduler& scheduler = std::get<2>(prepared);

  std::vector<double> bare;
  std::vector<double> ours;
  std::vector<double> differences;
  const auto timed = [&](std::vector<double>& times, const auto& block) {
    const auto start = Clock::now();
    block();
    times.push_back(seconds_since(start) * 1e6 / micro_batches);
  };
  const auto run_bare = [&] { bare_loop(*bare_net, bare_sgd, bare_schedule, batches); };
  const auto run_ours = [&] { accel_loop(accelerator, *net, optimizer, scheduler, batches); };
  for (int warm_up = 0; warm_up < 10; ++warm_up) run_bare(), run_ours();
  for (int pair = 0; pair < kPairs; ++pair) {
    // Which goes first changes, so that neither is always the one that finds warm caches.
    if (pair % 2 == 0) timed(bare, run_bare), timed(ours, run_ours);
    if (pair % 2 == 1) timed(ours, run_ours), timed(bare, run_bare);
    differences.push_back(ours.back() - bare.back());
  }
  std::printf("{\"bare_us\": %.3f, \"accel_us\": %.3f, \"overhead_us\": %.3f}\n", median(bare), median(ours),
              median(differences));
}

void throughput(std::int64_t steps) {
  constexpr int kBlocks = 15;
  constexpr int kRounds = 6;  // of all batches, in a block
  accel::Accelerator accelerator({.gradient_accumulation_steps = steps});
  const std::vector<Batch> batches = small_batches(accelerator.process_index());
  auto net = small_net();
  torch::optim::SGD plain_sgd(net->parameters(), sgd_options());
  auto prepared = accelerator.prepare(*net, plain_sgd);
  accel::Optimizer& optimizer = std::get<1>(prepared);
  const auto train = [&](int rounds) {
    for (int round = 0; round < rounds; ++round)
      for (const Batch& batch : batches) {
        const auto micro = accelerator.accumulate(*net, {.last = false});
        const at::Tensor loss = loss_of(*net, batch);
        accelerator.backward(loss);
        optimizer.step();
        optimizer.zero_grad();
      }
  };
  train(4);
  std::vector<double> rates;
  for (int block = 0; block < kBlocks; ++block) {
    accelerator.wait_for_everyone();
    const auto start = Clock::now();
    train(kRounds);
    accelerator.wait_for_everyone();
    rates.push_back(static_cast<double>(kRounds) * static_cast<double>(batches.size()) / seconds_since(start));
  }
  accelerator.print("{\"name\": \"n", steps, "\", \"micro_batches_per_s\": ", median(rates), "}");
}

// In MiB, as the kernel counts the largest resident set of this process.
double peak_mib() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word)
    if (word == "VmHWM:") {
      double kib = 0.0;
      status >> kib;
      return kib / 1024.0;
    }
  return 0.0;
}

// 96 MiB of parameters and as much of gradients: their place in memory stands out from the libraries'.
void memory(bool sync_each_batch) {
  accel::Accelerator accelerator({.gradient_accumulation_steps = 4, .sync_each_batch = sync_each_batch});
  auto net = std::make_shared<NetImpl>(2048, 8192, 1024);
  auto optimizer = std::get<1>(accelerator.prepare(
      *net, std::make_shared<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(0.01))));
  const std::vector<Batch> batches = make_batches(12, 32, 2048, 1024);
  const double before = peak_mib();
  for (const Batch& batch : batches) {
    const auto micro = accelerator.accumulate(*net, {.last = false});
    const at::Tensor loss = loss_of(*net, batch);
    accelerator.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
  }
  const double parameters = 4.0 * (2048.0 * 8192.0 + 8192.0 + 8192.0 * 1024.0 + 1024.0) / 1048576.0;
  const double grown = accelerator.mean(peak_mib() - before);
  accelerator.print("{\"parameters_mib\": ", parameters, ", \"peak_growth_mib\": ", grown,
                    ", \"peak_mib\": ", accelerator.is_main_process() ? peak_mib() : 0.0, "}");
}

// 3.4 M parameters, 8 rows of 64 tokens.
struct TextNetImpl : torch::nn::Module {
  static constexpr std::int64_t kTokens = 1000;
  static constexpr std::int64_t kWidth = 256;

  at::Tensor forward(const at::Tensor& tokens) { return head(encoder(embedding(tokens))); }

  torch::nn::Embedding embedding = register_module("embedding", torch::nn::Embedding(kTokens, kWidth));
  torch::nn::TransformerEncoder encoder = register_module(
      "encoder", torch::nn::TransformerEncoder(torch::nn::TransformerEncoderOptions(
                     torch::nn::TransformerEncoderLayerOptions(kWidth, 4).dim_feedforward(1024).dropout(0.0), 4)));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(kWidth, 10));
};

void transformer(bool with_accel) {
  constexpr int kWarmUp = 3;
  constexpr int kSteps = 12;
  at::manual_seed(0);
  auto net = std::make_shared<TextNetImpl>();
  torch::optim::SGD sgd(net->parameters(), sgd_options());
  std::vector<double> times;
  const auto timed = [&](int step, const auto& body) {
    const at::Tensor tokens = at::randint(TextNetImpl::kTokens, {64, 8}, at::kLong);
    const at::Tensor classes = at::randint(10, {64 * 8}, at::kLong);
    const auto start = Clock::now();
    body([&] { return at::cross_entropy_loss(net->forward(tokens).flatten(0, 1), classes); });
    if (step >= kWarmUp) times.push_back(seconds_since(start) * 1e3);
  };
  if (with_accel) {
    accel::Accelerator accelerator;
    auto optimizer = std::get<1>(accelerator.prepare(*net, sgd));
    at::manual_seed(static_cast<std::uint64_t>(accelerator.process_index()));
    for (int step = 0; step < kWarmUp + kSteps; ++step)
      timed(step, [&](const auto& loss) {
        const auto micro = accelerator.accumulate(*net, {.last = false});
        accelerator.backward(loss());
        optimizer.step();
        optimizer.zero_grad();
      });
    accelerator.print("{\"ms\": ", median(times), "}");
    return;
  }
  for (int step = 0; step < kWarmUp + kSteps; ++step)
    timed(step, [&](const auto& loss) {
      loss().backward();
      sgd.step();
      sgd.zero_grad();
    });
  std::printf("{\"ms\": %.4f}\n", median(times));
}

int run(const std::vector<std::string>& words) {
  at::set_num_threads(1);
  if (words.size() == 1 && words[0] == "overhead") {
    overhead();
  } else if (words.size() >= 2 && words[0] == "throughput") {
    for (std::size_t word = 1; word < words.size(); ++word) throughput(std::stoll(words[word]));
  } else if (words.size() == 2 && words[0] == "memory") {
    memory(words[1] == "1");
  } else if (words.size() == 2 && words[0] == "transformer") {
    transformer(words[1] == "1");
  } else {
    std::fprintf(stderr, "usage: accel_bench overhead | throughput <steps>... | memory <0|1> | transformer <0|1>\n");
    return 2;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "accel_bench: %s\n", error.what());
    accel::job_abort(1, "accel_bench failed");
  }
}
