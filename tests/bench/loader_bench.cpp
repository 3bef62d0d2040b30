// What reading data costs, a line of JSON for each measurement:
//   loader_bench samples <workers>  samples a second of a loader over the digits, for peers/torch_loader.py to compare
//   loader_bench wait               the share of the demo's training loop that it waits for its loader

#include "digits_net.hpp"

#include <accel/accelerator.hpp>
#include <accel/digits.hpp>

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Example = torch::data::Example<>;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// The digits as bytes, normalised when they are read: what the Python program does with each digit is done with the
/// digits of a batch at once, as data sets with get_batch do.
class NormalisedDigits {
 public:
  NormalisedDigits() {
    const accel::Digits digits(accel::DigitsSplit::kTrain);
    images_ = (digits.images() * 255.0).round().to(torch::kByte);
    targets_ = digits.targets();
  }
  [[nodiscard]] Example get_batch(c10::ArrayRef<std::size_t> indices) const {
    const auto rows = torch::tensor(std::vector<std::int64_t>(indices.begin(), indices.end()));
    return {images_.index_select(0, rows).to(torch::kFloat).div_(255.0).sub_(0.1307).div_(0.3081),
            targets_.index_select(0, rows)};
  }
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(targets_.size(0)); }

 private:
  torch::Tensor images_;
  torch::Tensor targets_;
};

void measure_samples(std::size_t workers) {
  const auto loader =
      accel::make_data_loader(NormalisedDigits(), {.batch_size = 32, .shuffle = true, .num_workers = workers});
  std::vector<double> rates;
  double checksum = 0.0;
  for (int epoch = 0; epoch < 8; ++epoch) {
    const auto start = Clock::now();
    std::int64_t samples = 0;
    for (const auto& batch : loader) {
      samples += batch.target.size(0);
      checksum += batch.data.data_ptr<float>()[0];
    }
    if (epoch > 0) rates.push_back(static_cast<double>(samples) / seconds_since(start));
  }
  std::printf("{\"workers\": %zu, \"samples_per_s\": %.1f, \"checksum\": %.4f}\n", workers, median(rates), checksum);
}

// The demo's loop, as in examples/02_accelerator.cpp, with a clock around what its `for` does between two batches.
void measure_wait() {
  const digits::Flags flags;
  accel::Accelerator accelerator({.gradient_accumulation_steps = flags.gradient_accumulation_steps});
  torch::manual_seed(flags.seed);
  digits::Net net;
  torch::optim::AdamW adamw(net->parameters(), torch::optim::AdamWOptions(flags.learning_rate));
  auto [model, optimizer, loader] = accelerator.prepare(net, adamw, digits::train_loader(flags));
  std::vector<double> shares;
  for (int epoch = 0; epoch < 3; ++epoch) {
    double waited = 0.0;
    const auto start = Clock::now();
    auto asked = start;
    auto it = loader.begin();
    while (it != loader.end()) {
      waited += seconds_since(asked);
      auto& batch = *it;
      {
        const auto micro = accelerator.accumulate(model);
        auto loss = digits::loss_of(model, batch);
        accelerator.backward(loss);
        optimizer.step();
        optimizer.zero_grad();
      }
      asked = Clock::now();
      ++it;
    }
    waited += seconds_since(asked);
    shares.push_back(waited / seconds_since(start));
  }
  std::printf("{\"wait_share\": %.6f}\n", median(shares));
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "samples" && argc == 3) {
    measure_samples(std::stoul(argv[2]));
  } else if (mode == "wait") {
    measure_wait();
  } else {
    std::fputs("loader_bench samples <workers> | wait\n", stderr);
    return 2;
  }
}
