// An evaluation on several ranks is the one of one rank.

#include <accel/accelerator.hpp>
#include <accel/error.hpp>
#include <accel/metrics.hpp>

#include "support/rank_expect.hpp"
#include "support/torch_doctest.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <torch/data/example.h>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

namespace metrics = accel::metrics;
using accel::test::rank;
using accel::test::ranks;

namespace {

constexpr std::int64_t kSamples = 997;

/// Sample i: a score, and a class that the score mostly tells.
struct Scored {
  [[nodiscard]] std::pair<at::Tensor, at::Tensor> get_batch(c10::ArrayRef<std::size_t> indices) const {
    std::vector<double> scores;
    std::vector<std::int64_t> targets;
    for (const std::size_t index : indices) {
      scores.push_back(std::sin(static_cast<double>(index * index)));
      targets.push_back(index % 7 == 0 ? static_cast<std::int64_t>(index % 2) : (scores.back() > 0.5 ? 1 : 0));
    }
    return {at::tensor(scores, at::kDouble), at::tensor(targets, at::kLong)};
  }
  [[nodiscard]] std::size_t size() const { return kSamples; }
};

struct Results {
  metrics::Accuracy accuracy;
  metrics::F1 f1;
  metrics::ConfusionMatrix confusion;
  metrics::Mean mean;
  metrics::Pearson pearson;
  metrics::Spearman spearman;

  void update(const at::Tensor& scores, const at::Tensor& targets) {
    accuracy.update(scores, targets);
    f1.update(scores, targets);
    confusion.update(scores, targets);
    mean.update(scores);
    pearson.update(scores, targets);
    spearman.update(scores, targets);
  }
};

/// What one process gives for the whole data.
Results of_one_rank() {
  Results results;
  for (auto& [scores, targets] : accel::make_data_loader(Scored(), {.batch_size = 16})) results.update(scores, targets);
  return results;
}

}  // namespace

TEST_CASE("997 samples on any number of ranks: gathered rows give the bits of one rank") {
  accel::Accelerator accelerator;
  const Results expected = of_one_rank();
  for (const bool workers : {false, true}) {
    const auto loader = accelerator.prepare(
        accel::make_data_loader(Scored(), {.batch_size = 16, .num_workers = static_cast<std::size_t>(2 * workers)}));
    Results results;
    std::int64_t count = 0;
    for (auto& batch : loader) {
      const auto [scores, targets] = accelerator.gather_for_metrics(batch);
      count += scores.size(0);
      results.update(scores, targets);
    }
    CHECK(count == kSamples);
    CHECK(results.accuracy.compute() == expected.accuracy.compute());
    CHECK(results.f1.compute() == expected.f1.compute());
    CHECK(at::equal(results.confusion.compute(), expected.confusion.compute()));
    CHECK(std::abs(results.mean.compute() - expected.mean.compute()) < 1e-12);
    CHECK(std::abs(results.pearson.compute() - expected.pearson.compute()) < 1e-12);
    CHECK(std::abs(results.spearman.compute() - expected.spearman.compute()) < 1e-12);
  }
}

TEST_CASE("997 samples on any number of ranks: counts of each rank's own rows are merged exactly") {
  accel::Accelerator accelerator;
  const Results expected = of_one_rank();
  const auto loader = accelerator.prepare(accel::make_data_loader(Scored(), {.batch_size = 16, .even_batches = false}));
  Results results;
  for (auto& [scores, targets] : loader) results.update(scores, targets);
  const accel::Group& group = accelerator.group();
  CHECK(results.confusion.compute(group).sum().item<std::int64_t>() == kSamples);
  CHECK(at::equal(results.confusion.compute(group), expected.confusion.compute()));
  CHECK(results.accuracy.compute(group) == expected.accuracy.compute());
  CHECK(results.f1.compute(group) == expected.f1.compute());
  CHECK(std::abs(results.mean.compute(group) - expected.mean.compute()) < 1e-12);
  CHECK(std::abs(results.pearson.compute(group) - expected.pearson.compute()) < 1e-12);
  CHECK(std::abs(results.spearman.compute(group) - expected.spearman.compute()) < 1e-12);
  // Computing changes nothing.
  CHECK(results.accuracy.compute(group) == expected.accuracy.compute());
}

TEST_CASE("a metric of nothing, and options that differ, are errors on all ranks") {
  accel::Accelerator accelerator;
  metrics::Accuracy nothing;
  CHECK_THROWS_AS((void)nothing.compute(accelerator.group()), accel::UsageError);
  CHECK_THROWS_AS((void)metrics::Spearman().compute(accelerator.group()), accel::UsageError);
  if (ranks() > 1) {
    metrics::Accuracy different({.num_classes = 2 + rank()});
    different.update(at::tensor({0, 1}), at::tensor({0, 1}));
    CHECK_THROWS_AS((void)different.compute(accelerator.group()), accel::UsageError);
  }
  // A rank without a row takes part; the group is good.
  metrics::Accuracy one;
  if (rank() == ranks() - 1) one.update(at::tensor({0, 1, 1}), at::tensor({0, 1, 0}));
  CHECK(one.compute(accelerator.group()) == 2.0 / 3.0);
}
