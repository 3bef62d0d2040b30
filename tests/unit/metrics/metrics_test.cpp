#include <accel/error.hpp>
#include <accel/metrics.hpp>

#include "support/error_text.hpp"
#include "support/torch_doctest.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <cmath>
#include <limits>
#include <string>

namespace metrics = accel::metrics;
using accel::test::contains;
using accel::test::error_text;

namespace {

const at::Tensor kReferences = at::tensor({1, 1, 1, 0, 0, 0, 0, 0}, at::kLong);
const at::Tensor kPredictions = at::tensor({1, 1, 0, 1, 0, 0, 0, 0}, at::kLong);

}  // namespace

TEST_CASE("scores by hand: two right of three predicted and three referred, eight rows") {
  metrics::Accuracy accuracy;
  metrics::Precision precision;
  metrics::Recall recall;
  metrics::F1 f1;
  accuracy.update(kPredictions, kReferences);
  precision.update(kPredictions, kReferences);
  recall.update(kPredictions, kReferences);
  f1.update(kPredictions, kReferences);
  CHECK(accuracy.compute() == 6.0 / 8.0);
  CHECK(precision.compute() == 2.0 / 3.0);
  CHECK(recall.compute() == 2.0 / 3.0);
  CHECK(f1.compute() == 4.0 / 6.0);
  CHECK(f1.compute_per_class()[0].item<double>() == 8.0 / 10.0);
}

TEST_CASE("the same rows as logits, scores, bools and integers of another width give the same") {
  const at::Tensor scores = kPredictions.to(at::kFloat) * 0.8 + 0.1;
  const at::Tensor logits = at::stack({scores * -1.0 + 1.0, scores}, 1);
  for (const at::Tensor& predictions :
       {kPredictions, scores, logits, kPredictions.to(at::kBool), kPredictions.to(at::kInt), logits.to(at::kHalf)}) {
    metrics::MatthewsCorrelation matthews;
    matthews.update(predictions, kReferences);
    CHECK(matthews.compute() == doctest::Approx(7.0 / 15.0).epsilon(1e-12));
  }
}

TEST_CASE("merge adds rows, reset forgets them, ignored references are left out") {
  metrics::ConfusionMatrix first({.num_classes = 3, .ignore_index = -1});
  metrics::ConfusionMatrix second({.num_classes = 3, .ignore_index = -1});
  first.update(at::tensor({0, 1, 2}), at::tensor({0, 2, -1}));
  second.update(at::tensor({1}), at::tensor({1}));
  first.merge(second);
  at::Tensor expected = at::full({3, 3}, 0, at::kLong);
  expected[0][0] = 1;
  expected[2][1] = 1;
  expected[1][1] = 1;
  CHECK(at::equal(first.compute(), expected));
  first.reset();
  CHECK(first.compute().sum().item<std::int64_t>() == 0);
  metrics::ConfusionMatrix other({.num_classes = 4});
  CHECK_THROWS_AS(first.merge(other), accel::UsageError);
}

TEST_CASE("wrong rows are refused by value and index, and nothing is taken in") {
  metrics::Accuracy accuracy({.num_classes = 3});
  CHECK(contains(error_text<accel::UsageError>([&] { accuracy.update(at::tensor({0, 3}), at::tensor({0, 1})); }), "3"));
  CHECK_THROWS_AS(accuracy.update(at::tensor({0, 1}), at::tensor({0, -1})), accel::UsageError);
  CHECK_THROWS_AS(accuracy.update(at::tensor({0, 1}), at::tensor({0})), accel::UsageError);
  CHECK_THROWS_AS(accuracy.update(at::full({2, 4}, 1.0), at::tensor({0, 1})), accel::UsageError);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_AS(metrics::Accuracy().update(at::tensor({0.1, nan}, at::kDouble), at::tensor({0, 1})),
                  accel::UsageError);
  CHECK_THROWS_AS((void)accuracy.compute(), accel::UsageError);
  CHECK_THROWS_AS(metrics::F1({.num_classes = 5}), accel::UsageError);
  CHECK_THROWS_AS(metrics::Accuracy({.num_classes = 1}), accel::UsageError);
}

TEST_CASE("perplexity of equal logits is the number of classes") {
  metrics::Perplexity perplexity;
  perplexity.update(at::full({2, 3, 8}, 0.5, at::kDouble), at::tensor({0, 1, 2, 3, -100, 7}, at::kLong).view({2, 3}));
  CHECK(perplexity.compute() == doctest::Approx(8.0).epsilon(1e-12));
  CHECK_THROWS_AS(perplexity.update(at::full({1, 8}, 0.5), at::tensor({8}, at::kLong)), accel::UsageError);
  CHECK_THROWS_AS((void)metrics::Perplexity().compute(), accel::UsageError);
}

TEST_CASE("a mean keeps what float sums lose") {
  metrics::Mean mean;
  mean.update(1e16);
  for (int each = 0; each < 10; ++each) mean.update(1.0);
  mean.update(-1e16);
  CHECK(mean.compute() == doctest::Approx(10.0 / 12.0).epsilon(1e-12));
  mean.reset();
  mean.update(2.0, 3.0);
  mean.update(at::tensor({4.0, 4.0}), 0.5);
  CHECK(mean.compute() == 10.0 / 4.0);
}

TEST_CASE("correlations by hand") {
  metrics::Pearson pearson;
  metrics::Spearman spearman;
  const at::Tensor x = at::tensor({1.0, 2.0, 3.0, 4.0}, at::kDouble);
  const at::Tensor y = at::tensor({1.0, 4.0, 9.0, 1.0}, at::kDouble);
  for (std::int64_t at = 0; at < 4; ++at) {
    pearson.update(x.slice(0, at, at + 1), y.slice(0, at, at + 1));
    spearman.update(x.slice(0, at, at + 1), y.slice(0, at, at + 1));
  }
  CHECK(pearson.compute() == doctest::Approx(2.5 / std::sqrt(5.0 * 42.75)).epsilon(1e-12));
  CHECK(spearman.compute() == doctest::Approx(0.5 / std::sqrt(5.0 * 4.5)).epsilon(1e-12));
  CHECK_THROWS_AS((void)metrics::Pearson().compute(), accel::UsageError);
}
