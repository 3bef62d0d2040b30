// The metrics against scikit-learn and scipy (tests/golden/metrics.py), updated in chunks on all ranks.

#include <accel/error.hpp>
#include <accel/metrics.hpp>

#include "support/rank_expect.hpp"
#include "support/torch_doctest.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

namespace metrics = accel::metrics;
using accel::test::rank;
using accel::test::ranks;
using accel::test::same_on_all_ranks;
using nlohmann::json;

namespace {

const json& golden() {
  static const json file = [] {
    std::ifstream in(ACCEL_METRICS_FILE);
    return json::parse(in);
  }();
  return file;
}

double number(const json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

at::Tensor numbers(const json& list) {
  std::vector<double> values;
  for (const json& value : list) values.push_back(number(value));
  return at::tensor(values, at::kDouble);
}
at::Tensor classes(const json& list) {
  return at::tensor(list.get<std::vector<std::int64_t>>(), at::kLong);
}

/// Equal bit for bit where it was worked out from counts, else to 1e-12; NaN is NaN.
bool close(double found, double expected) {
  if (std::isnan(expected)) return std::isnan(found);
  return std::abs(found - expected) <= 1e-12 * std::max(1.0, std::abs(expected));
}

/// f(begin, end) for the chunks of this rank: of 1, 2, 3, ... rows, dealt to all ranks but the last in turn; on one
/// rank all are its own. The last of several ranks has nothing.
template <class F>
void for_own_chunks(std::int64_t rows, F f) {
  std::int64_t chunk = 0;
  for (std::int64_t begin = 0; begin < rows; ++chunk) {
    const std::int64_t end = std::min(rows, begin + 1 + chunk % 9);
    if (chunk % std::max(1, ranks() - 1) == rank()) f(begin, end);
    begin = end;
  }
}

template <class Metric>
void feed(Metric& metric, const at::Tensor& first, const at::Tensor& second) {
  for_own_chunks(first.size(0), [&](std::int64_t begin, std::int64_t end) {
    metric.update(first.slice(0, begin, end), second.slice(0, begin, end));
  });
}

metrics::Average average_of(const std::string& name) {
  if (name == "binary") return metrics::Average::kBinary;
  if (name == "micro") return metrics::Average::kMicro;
  return name == "weighted" ? metrics::Average::kWeighted : metrics::Average::kMacro;
}

template <class Metric>
void check_score(const json& each, const json& data) {
  metrics::ClassScoreOptions options;
  options.num_classes = data["num_classes"];
  options.zero_division = number(each["zero_division"]);
  options.average = average_of(each["average"]);
  options.pos_label = each.value("pos_label", std::int64_t{1});
  options.all_classes = each.value("all_classes", false);
  Metric metric(options);
  feed(metric, classes(data["predictions"]), classes(data["references"]));
  if (each["average"] == "none") {
    const at::Tensor found = metric.compute_per_class(accel::world());
    const at::Tensor expected = numbers(each["value"]);
    for (std::int64_t at = 0; at < expected.numel(); ++at)
      CHECK(close(found[at].item<double>(), expected[at].item<double>()));
    return;
  }
  const double found = metric.compute(accel::world());
  CHECK(close(found, number(each["value"])));
  CHECK(same_on_all_ranks(at::tensor({found}, at::kDouble)));
}

}  // namespace

TEST_CASE("scores of classes are those of scikit-learn") {
  REQUIRE(golden()["classification"].size() == 12);
  int checked = 0;
  for (const json& data : golden()["classification"])
    for (const json& each : data["scores"]) {
      const std::string text = data["name"].get<std::string>() + " " + each.dump();
      CAPTURE(text);
      if (each["metric"] == "precision")
        check_score<metrics::Precision>(each, data);
      else if (each["metric"] == "recall")
        check_score<metrics::Recall>(each, data);
      else
        check_score<metrics::F1>(each, data);
      ++checked;
    }
  CHECK(checked > 500);
}

TEST_CASE("accuracy, Matthews' correlation and the confusion matrix are those of scikit-learn") {
  for (const json& data : golden()["classification"]) {
    const std::string name = data["name"];
    CAPTURE(name);
    const metrics::ClassOptions options{.num_classes = data["num_classes"]};
    metrics::Accuracy accuracy(options);
    metrics::MatthewsCorrelation matthews(options);
    metrics::ConfusionMatrix confusion(options);
    const at::Tensor predictions = classes(data["predictions"]);
    const at::Tensor references = classes(data["references"]);
    feed(accuracy, predictions, references);
    feed(matthews, predictions, references);
    feed(confusion, predictions, references);
    CHECK(accuracy.compute(accel::world()) == number(data["accuracy"]));
    CHECK(close(matthews.compute(accel::world()), number(data["matthews"])));
    const at::Tensor matrix = confusion.compute(accel::world());
    for (std::int64_t row = 0; row < matrix.size(0); ++row)
      CHECK(at::equal(matrix[row], classes(data["confusion"][static_cast<std::size_t>(row)])));
  }
}

TEST_CASE("correlations are those of scipy") {
  for (const json& data : golden()["correlation"]) {
    const std::string name = data["name"];
    CAPTURE(name);
    metrics::Pearson pearson;
    metrics::Spearman spearman;
    feed(pearson, numbers(data["x"]), numbers(data["y"]));
    feed(spearman, numbers(data["x"]), numbers(data["y"]));
    const double found = pearson.compute(accel::world());
    CHECK(close(found, number(data["pearson"])));
    CHECK(same_on_all_ranks(at::tensor({found}, at::kDouble)));
    CHECK(close(spearman.compute(accel::world()), number(data["spearman"])));
  }
}

TEST_CASE("perplexity and means are those of numpy") {
  const json& tokens = golden()["perplexity"];
  std::vector<at::Tensor> rows;
  for (const json& row : tokens["logits"]) rows.push_back(numbers(row));
  metrics::Perplexity perplexity;
  feed(perplexity, at::stack(rows), classes(tokens["targets"]));
  CHECK(close(perplexity.compute(accel::world()), number(tokens["value"])));

  metrics::Perplexity summed;
  if (rank() == 0) summed.update(number(tokens["sum_nll"]), tokens["tokens"].get<std::int64_t>());
  CHECK(close(summed.compute(accel::world()), number(tokens["value"])));

  const json& data = golden()["mean"];
  metrics::Mean weighted;
  feed(weighted, numbers(data["values"]), numbers(data["weights"]));
  CHECK(close(weighted.compute(accel::world()), number(data["weighted"])));
  metrics::Mean plain;
  for_own_chunks(static_cast<std::int64_t>(data["values"].size()), [&](std::int64_t begin, std::int64_t end) {
    plain.update(numbers(data["values"]).slice(0, begin, end));
  });
  CHECK(close(plain.compute(accel::world()), number(data["mean"])));
}
