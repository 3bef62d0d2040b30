#pragma once

// What the programs of this folder share: flags, and a record of losses and weights by which runs are compared.

#include <torch/torch.h>
#include <CLI/CLI.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace example {

/// Which of two twins a program is: plain LibTorch, or the same with accel.
enum class Twin { kBare, kAccel };

struct Flags {
  std::int64_t steps = 0;
  std::int64_t batch_size = 0;
  std::uint64_t seed = 1;
  std::int64_t gradient_accumulation_steps = 1;
  std::string save = {};
  int spoil_rank = -1;
  std::int64_t spoil_step = -1;

  /// Samples of a micro-batch on one of `ranks` ranks: all of them together have equally many on any number of ranks.
  [[nodiscard]] std::int64_t share(int ranks) const {
    if (batch_size % ranks != 0)
      throw std::invalid_argument("expected a batch size that " + std::to_string(ranks) + " ranks can divide, found " +
                                  std::to_string(batch_size) + "; change --batch-size");
    return batch_size / ranks;
  }

  /// The rows of rank `rank` of a tensor that all ranks made alike.
  [[nodiscard]] torch::Tensor rows(const torch::Tensor& all, int rank, int ranks, std::int64_t dim = 0) const {
    return all.narrow(dim, rank * share(ranks), share(ranks));
  }

  /// `data` as this rank meets it at this step: not numbers where --spoil-rank and --spoil-step say so.
  [[nodiscard]] torch::Tensor met(const torch::Tensor& data, int rank, std::int64_t step) const {
    return rank == spoil_rank && step == spoil_step ? data * std::numeric_limits<float>::quiet_NaN() : data;
  }
};

/// Reads the command line; ends the program on --help and on mistakes. `more` may add options of its own.
template <class More>
Flags read_flags(int argc, char** argv, const std::string& what, Twin twin, Flags flags, More more) {
  CLI::App app(what);
  app.add_option("--steps", flags.steps, "micro-batches of the training")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  app.add_option("--batch-size", flags.batch_size, "samples of a micro-batch, on all ranks together")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  app.add_option("--seed", flags.seed, "of the first weights and of all that is drawn")->capture_default_str();
  app.add_option("--save", flags.save, "file for the losses and the trained weights");
  if (twin == Twin::kAccel) {
    app.add_option("-n,--gradient-accumulation-steps", flags.gradient_accumulation_steps,
                   "micro-batches of an optimizer step")
        ->check(CLI::Range(1, 1 << 30))
        ->capture_default_str();
    app.add_option("--spoil-rank", flags.spoil_rank, "the rank whose data go bad, to see how a job ends");
    app.add_option("--spoil-step", flags.spoil_step, "the step at which they do");
  }
  more(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    std::exit(app.exit(e));
  }
  return flags;
}
inline Flags read_flags(int argc, char** argv, const std::string& what, Twin twin, Flags flags) {
  return read_flags(argc, argv, what, twin, std::move(flags), [](CLI::App&) {});
}

/// A loss that is no number is found where it arises, on the rank whose data made it.
inline void require_finite(const torch::Tensor& loss, std::int64_t step) {
  if (!std::isfinite(loss.item<double>()))
    throw std::runtime_error("the loss of step " + std::to_string(step) + " is not finite: look at this rank's data");
}

/// Prints losses and keeps them, on rank 0.
class Record {
 public:
  explicit Record(const Flags& flags, int rank = 0, int ranks = 1) : flags_(flags), writes_(rank == 0) {
    if (writes_) std::printf("ranks %d\n", ranks);
  }

  void loss(std::int64_t step, double value, const char* name = "loss") {
    losses_.push_back(value);
    if (writes_ && (step % every() == 0 || step + 1 == flags_.steps))
      std::printf("step %lld  %s %.6f\n", static_cast<long long>(step), name, value);
  }

  /// Writes losses and weights to the file of --save.
  void save(const std::vector<torch::Tensor>& weights) const {
    if (!writes_ || flags_.save.empty()) return;
    std::vector<torch::Tensor> all{torch::tensor(losses_, torch::kDouble)};
    for (const auto& weight : weights) all.push_back(weight.detach().cpu().contiguous());
    torch::save(all, flags_.save);
  }

 private:
  [[nodiscard]] std::int64_t every() const { return std::max<std::int64_t>(1, flags_.steps / 10); }

  Flags flags_;
  bool writes_;
  std::vector<double> losses_;
};

}  // namespace example
