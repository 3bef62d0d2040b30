// An evaluation over ranks is that of one rank, and what is wrong on one is told on all.
#include "support/rank_expect.hpp"
#include "support/torch_doctest.hpp"

#include <accel/error.hpp>
#include <accel/metrics.hpp>

#include <ATen/ATen.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

using namespace accel;
using namespace accel::metrics;
using namespace accel::test;

namespace {

constexpr std::int64_t kRows = 997;
constexpr std::int64_t kClasses = 10;

// The same on every rank.
struct Data {
  at::Tensor logits;
  at::Tensor targets;
  at::Tensor values;
  at::Tensor others;
};

Data data() {
  at::manual_seed(11);
  Data all;
  all.targets = at::randint(kClasses, {kRows}, at::kLong);
  all.logits = at::randn({kRows, kClasses}) + 2.0 * at::one_hot(all.targets, kClasses);
  all.values = at::randn({kRows}, at::kDouble) * 3.0 + 5.0;
  all.others = (all.values + at::randn({kRows}, at::kDouble)).mul(4.0).round();
  return all;
}

// As a loader deals them: row by row, the last batch short.
at::Tensor rows_of_rank() {
  return at::arange(rank(), kRows, ranks());
}

template <class Metric>
Metric evaluated(Metric metric, const at::Tensor& predictions, const at::Tensor& references, const at::Tensor& rows) {
  for (const at::Tensor& batch : rows.split(32))
    metric.update(predictions.index_select(0, batch), references.index_select(0, batch));
  return metric;
}

bool same_bits(double a, double b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

bool same_on_all(double value) {
  return same_on_all_ranks(at::full({1}, value, at::kDouble));
}

const at::Tensor& all_rows() {
  static const at::Tensor rows = at::arange(kRows);
  return rows;
}

}  // namespace

TEST_CASE("997 samples: what is computed from counts equals that of one rank bit for bit") {
  const Data all = data();
  const auto check = [&](const auto& metric) {
    const double one = evaluated(metric, all.logits, all.targets, all_rows()).compute();
    const double many = evaluated(metric, all.logits, all.targets, rows_of_rank()).compute(world());
    CHECK(same_bits(one, many));
    CHECK(same_on_all(many));
    CHECK((one > 0.3 && one < 0.95));
  };
  const ClassOptions ten{.num_classes = kClasses};
  check(Accuracy(ten));
  check(MatthewsCorrelation(ten));
  for (const Average average : {Average::kMacro, Average::kMicro, Average::kWeighted}) {
    const ClassScoreOptions options{.average = average, .num_classes = kClasses};
    check(Precision(options));
    check(Recall(options));
    check(F1(options));
  }
  const ConfusionMatrix matrix(ten);
  const at::Tensor many = evaluated(matrix, all.logits, all.targets, rows_of_rank()).compute(world());
  CHECK(at::equal(many, evaluated(matrix, all.logits, all.targets, all_rows()).compute()));
  CHECK(many.sum().item<std::int64_t>() == kRows);
}

TEST_CASE("997 samples: sums of numbers equal those of one rank to 1e-12, and on all ranks bit for bit") {
  const Data all = data();
  const auto check = [&](const auto& metric, const at::Tensor& first, const at::Tensor& second) {
    const double one = evaluated(metric, first, second, all_rows()).compute();
    const double many = evaluated(metric, first, second, rows_of_rank()).compute(world());
    CHECK(std::abs(one - many) <= 1e-12 * std::abs(one));
    CHECK(same_on_all(many));
  };
  check(Mean(), all.values, all.others.abs());
  check(Pearson(), all.values, all.others);
  check(Spearman(), all.values, all.others);
  check(Perplexity(), all.logits, all.targets);
}

TEST_CASE("computing changes nothing: it may be done on the way") {
  const Data all = data();
  const Mean mean = evaluated(Mean(), all.values, at::ones({kRows}), rows_of_rank());
  CHECK(same_bits(mean.compute(world()), mean.compute(world())));
  Accuracy accuracy;
  for (int step = 1; step <= 3; ++step) {
    accuracy.update(at::full({1}, step % 2, at::kLong), at::ones({1}, at::kLong));
    CHECK(accuracy.compute(world()) == (step / 2 + step % 2) / static_cast<double>(step));
  }
}

TEST_CASE("ranks of a group alone") {
  const Group half = world().split(rank() % 2);
  Mean mean;
  mean.update(mine());
  double sum = 0.0;
  for (int each = rank() % 2; each < ranks(); each += 2) sum += one_more(each);
  CHECK(mean.compute(half) == sum / half.size());
}

TEST_CASE("a rank without rows takes part") {
  Accuracy accuracy;
  Pearson pearson;
  Spearman spearman;
  Perplexity perplexity;
  if (rank() == 0) {
    accuracy.update(at::ones({3}, at::kLong), at::ones({3}, at::kLong));
    pearson.update(at::arange(3), at::arange(3));
    spearman.update(at::arange(3), -at::arange(3));
    perplexity.update(at::zeros({2, 4}, at::kDouble), at::zeros({2}, at::kLong));
  }
  CHECK(accuracy.compute(world()) == 1.0);
  CHECK(pearson.compute(world()) == 1.0);
  CHECK(spearman.compute(world()) == -1.0);
  CHECK(perplexity.compute(world()) == doctest::Approx(4.0).epsilon(1e-15));
}

TEST_CASE("no rows anywhere is an error on all ranks") {
  const auto text = [](const auto& metric) { return error_text<UsageError>([&] { (void)metric.compute(world()); }); };
  CHECK(contains(text(F1()), "F1.compute: expected rows to score, found none"));
  CHECK(contains(text(Mean()), "Mean.compute: expected weights"));
  CHECK(contains(text(Spearman()), "Spearman.compute: expected two pairs or more"));
  CHECK(contains(text(Pearson()), "metrics_ranks.cpp:"));
  CHECK(contains(text(Perplexity()), "accel[" + std::to_string(rank()) + "/" + std::to_string(ranks()) + "]"));
  barrier();
}

TEST_CASE("options that differ between ranks are told on all ranks") {
  if (ranks() == 1) return;
  const bool other = rank() == 1;
  const auto check = [](const auto& metric, const std::string& first, const std::string& second) {
    const std::string text = error_text<UsageError>([&] { (void)metric.compute(world()); });
    CHECK(contains(
        text, "expected the same metric on all ranks, found '" + first + "' on rank 0 and '" + second + "' on rank 1"));
  };
  check(F1({.average = other ? Average::kMicro : Average::kMacro, .num_classes = 3}), "average macro", "average micro");
  check(Recall({.zero_division = other ? 1.0 : 0.0}), "zero_division 0", "zero_division 1");
  check(ConfusionMatrix({.num_classes = other ? 4 : 3}), "num_classes 3", "num_classes 4");
  check(Perplexity({.ignore_index = other ? 0 : -100}), "ignore_index -100", "ignore_index 0");
  const std::string text =
      error_text<UsageError>([&] { other ? (void)Pearson().compute(world()) : (void)Mean().compute(world()); });
  CHECK(contains(text, "found 'Mean' on rank 0 and 'Pearson' on rank 1"));
  barrier();
}
