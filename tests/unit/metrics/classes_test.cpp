// Metrics of classes, against numbers worked out by hand.
#include "support/rank_expect.hpp"
#include "support/torch_doctest.hpp"

#include <accel/error.hpp>
#include <accel/metrics.hpp>

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <vector>

using namespace accel;
using namespace accel::metrics;
using namespace accel::test;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

at::Tensor classes(const std::vector<std::int64_t>& values) {
  return at::tensor(values, at::kLong);
}

// Of three classes (reference by prediction): 0: 2 1 0, 1: 0 1 1, 2: 1 0 2.
const std::vector<std::int64_t> kReferences = {0, 0, 0, 1, 1, 2, 2, 2};
const std::vector<std::int64_t> kPredictions = {0, 0, 1, 1, 2, 2, 2, 0};

template <class Metric, class Options>
Metric updated(const Options& options, const std::vector<std::int64_t>& predictions = kPredictions,
               const std::vector<std::int64_t>& references = kReferences) {
  Metric metric(options);
  metric.update(classes(predictions), classes(references));
  return metric;
}

template <class Metric>
double score(const ClassScoreOptions& options) {
  return updated<Metric>(options).compute();
}

std::vector<double> numbers(const at::Tensor& tensor) {
  return {tensor.data_ptr<double>(), tensor.data_ptr<double>() + tensor.numel()};
}

}  // namespace

TEST_CASE("accuracy, confusion and correlation of three classes") {
  const ClassOptions three{.num_classes = 3};
  CHECK(updated<Accuracy>(three).compute() == 5.0 / 8.0);
  const at::Tensor matrix = updated<ConfusionMatrix>(three).compute();
  CHECK(at::equal(matrix, classes({2, 1, 0, 0, 1, 1, 1, 0, 2}).view({3, 3})));
  // right 5 of 8; predictions 3 2 3, references 3 2 3: (5 * 8 - 22) / (64 - 22)
  CHECK(updated<MatthewsCorrelation>(three).compute() == doctest::Approx(18.0 / 42.0).epsilon(1e-15));
}

TEST_CASE("precision, recall and F1 by average") {
  for (const Average average : {Average::kMacro, Average::kMicro, Average::kWeighted}) {
    const double expected = average == Average::kMacro ? (2.0 / 3 + 0.5 + 2.0 / 3) / 3 : 5.0 / 8.0;
    const ClassScoreOptions options{.average = average, .num_classes = 3};
    CHECK(score<Precision>(options) == doctest::Approx(expected).epsilon(1e-15));
    CHECK(score<Recall>(options) == doctest::Approx(expected).epsilon(1e-15));
    CHECK(score<F1>(options) == doctest::Approx(expected).epsilon(1e-15));
  }
  const auto f1 = updated<F1>(ClassScoreOptions{.average = Average::kMacro, .num_classes = 3});
  CHECK(numbers(f1.compute_per_class()) == std::vector<double>{2.0 / 3, 0.5, 2.0 / 3});
}

TEST_CASE("two classes: the positive one is scored") {
  // Right 1s: 2; predicted 1s: 3; true 1s: 4. Of class 0: 1, 3, 2.
  const std::vector<std::int64_t> predictions = {1, 1, 0, 0, 1, 0};
  const std::vector<std::int64_t> references = {1, 1, 1, 1, 0, 0};
  CHECK(updated<Precision>(ClassScoreOptions{}, predictions, references).compute() == 2.0 / 3.0);
  CHECK(updated<Recall>(ClassScoreOptions{}, predictions, references).compute() == 0.5);
  CHECK(updated<F1>(ClassScoreOptions{}, predictions, references).compute() == 4.0 / 7.0);
  const ClassScoreOptions zero{.pos_label = 0};
  CHECK(updated<Precision>(zero, predictions, references).compute() == 1.0 / 3.0);
  CHECK(updated<Recall>(zero, predictions, references).compute() == 0.5);
  CHECK(updated<F1>(zero, predictions, references).compute() == 0.4);
}

TEST_CASE("zero divided by zero, and classes that never occur") {
  // Class 1 is never predicted, class 2 never occurs.
  const std::vector<std::int64_t> predictions = {0, 0, 0};
  const std::vector<std::int64_t> references = {0, 0, 1};
  const auto precision = [&](double zero_division, bool all_classes) {
    return updated<Precision>(
        ClassScoreOptions{
            .average = Average::kMacro, .num_classes = 3, .zero_division = zero_division, .all_classes = all_classes},
        predictions, references);
  };
  CHECK(precision(0.0, false).compute() == doctest::Approx(2.0 / 6).epsilon(1e-15));
  CHECK(precision(1.0, false).compute() == doctest::Approx(5.0 / 6).epsilon(1e-15));
  CHECK(precision(0.0, true).compute() == doctest::Approx(2.0 / 9).epsilon(1e-15));
  CHECK(precision(1.0, true).compute() == doctest::Approx(8.0 / 9).epsilon(1e-15));
  CHECK(precision(kNaN, true).compute() == doctest::Approx(2.0 / 3).epsilon(1e-15));
  CHECK(numbers(precision(1.0, false).compute_per_class()) == std::vector<double>{2.0 / 3, 1.0, 1.0});
  CHECK(std::isnan(numbers(precision(kNaN, false).compute_per_class())[2]));
}

TEST_CASE("predictions are classes, scores of all classes, or scores of one of two") {
  Accuracy three({.num_classes = 3});
  three.update(at::tensor({0.1, 0.7, 0.2, 5.0, -1.0, 0.0}).view({2, 3}), classes({1, 2}));
  CHECK(three.compute() == 0.5);
  three.update(at::tensor({2.0, 2.0, 0.0}).view({1, 3}), classes({0}));  // a tie: the first
  CHECK(three.compute() == 2.0 / 3.0);
  three.update(at::zeros({2, 2, 3}, at::kHalf), at::zeros({2, 2}, at::kInt));
  CHECK(three.compute() == 6.0 / 7.0);

  const at::Tensor scores = at::tensor({0.2, 0.5, 0.6, 0.9});
  Recall half;
  half.update(scores, classes({1, 1, 1, 1}));
  CHECK(half.compute() == 0.5);
  Recall low({.threshold = 0.1});
  low.update(scores, at::ones({4}, at::kBool));
  CHECK(low.compute() == 1.0);
}

TEST_CASE("rows to ignore are left out, whatever is predicted there") {
  Accuracy accuracy({.num_classes = 3, .ignore_index = -100});
  accuracy.update(classes({0, 99, 1}), classes({0, -100, 2}));
  CHECK(accuracy.compute() == 0.5);
  accuracy.update(at::tensor({kNaN, kNaN, kNaN, 0.0, 0.0, 1.0}).view({2, 3}), classes({-100, 2}));
  CHECK(accuracy.compute() == 2.0 / 3.0);
}

TEST_CASE("chunks and merges count every row once; copies are apart; reset forgets") {
  const ClassScoreOptions options{.average = Average::kMacro, .num_classes = 3};
  F1 first(options);
  F1 second(options);
  for (std::size_t row = 0; row < kReferences.size(); ++row)
    (row < 3 ? first : second).update(classes({kPredictions[row]}), classes({kReferences[row]}));
  first.update(classes({}), classes({}));
  const F1 before = first;
  const double alone = before.compute();
  first.merge(second);
  CHECK(first.compute() == updated<F1>(options).compute());
  CHECK(before.compute() == alone);
  CHECK(alone != first.compute());
  first.merge(first);
  CHECK(first.compute() == updated<F1>(options).compute());
  first.reset();
  CHECK(contains(error_text<UsageError>([&] { (void)first.compute(); }), "F1.compute: expected rows to score"));
}

TEST_CASE("what was computed does not change with later updates") {
  auto metric = updated<ConfusionMatrix>(ClassOptions{.num_classes = 3});
  const at::Tensor before = metric.compute();
  const at::Tensor same = before.clone();
  metric.update(classes({0}), classes({0}));
  CHECK(at::equal(before, same));
  before.zero_();
  CHECK(metric.compute().sum().item<std::int64_t>() == 9);
}

TEST_CASE("nothing to score is an error, but of a confusion matrix zeros") {
  CHECK(contains(error_text<UsageError>([] { (void)Accuracy().compute(); }), "Accuracy.compute: expected rows"));
  CHECK(contains(error_text<UsageError>([] { (void)Precision().compute_per_class(); }), "Precision.compute_per_class"));
  CHECK(contains(error_text<UsageError>([] { (void)MatthewsCorrelation().compute(Group()); }), "classes_test.cpp:"));
  Accuracy ignored({.ignore_index = 0});
  ignored.update(classes({1}), classes({0}));
  CHECK(contains(error_text<UsageError>([&] { (void)ignored.compute(); }), "ignore_index leaves any"));
  CHECK(at::equal(ConfusionMatrix().compute(), at::zeros({2, 2}, at::kLong)));
}

TEST_CASE("rows that are wrong are refused with value and index; nothing is taken in") {
  F1 f1({.average = Average::kMacro, .num_classes = 3});
  f1.update(classes({0, 1}), classes({0, 1}));
  const auto text = [&](const at::Tensor& predictions, const at::Tensor& references) {
    return error_text<UsageError>([&] { f1.update(predictions, references); });
  };
  CHECK(contains(text(classes({0, 1}), classes({0, 3})),
                 "F1.update: expected class indices in [0, 3), found reference 3 at index 1 of update 2"));
  CHECK(contains(text(classes({0, -7}), classes({0, 1})), "found prediction -7 at index 1"));
  CHECK(contains(text(at::tensor({0.0, 1.0, 0.0, kNaN, 0.0, 0.0}).view({2, 3}), classes({0, 1})), "NaN at index 1"));
  CHECK(contains(text(classes({0}), classes({0, 1})), "predictions [1] Long on cpu and references [2] Long on cpu"));
  CHECK(contains(text(at::zeros({2, 4}), classes({0, 1})), "floating scores [..., 3]"));
  CHECK(contains(text(at::zeros({2}), classes({0, 1})), "found predictions [2] Float"));
  CHECK(contains(text(classes({0, 1}), at::zeros({2})), "references [2] Float"));
  CHECK(contains(text(at::Tensor(), classes({0})), "an undefined tensor"));
  CHECK(f1.compute() == 1.0);
}

TEST_CASE("options that make no sense are refused") {
  const auto text = [](const ClassScoreOptions& options) { return error_text<UsageError>([&] { F1{options}; }); };
  CHECK(contains(text({.num_classes = 3}), "F1: expected num_classes 2 with Average::kBinary, found 3"));
  CHECK(contains(text({.average = Average::kMacro, .num_classes = 1}), "num_classes of 2 or more, found 1"));
  CHECK(contains(text({.pos_label = 2}), "pos_label in [0, 2), found 2"));
  CHECK(contains(text({.zero_division = 0.5}), "zero_division of 0, 1 or NaN, found 0.5"));
  Precision one;
  const Precision other({.threshold = std::nextafter(0.5, 1.0)});
  CHECK(contains(error_text<UsageError>([&] { one.merge(other); }), "found 'threshold 0.50000000000000011'"));
}
