// Metrics of numbers, against numbers worked out by hand.
#include "support/rank_expect.hpp"
#include "support/torch_doctest.hpp"

#include <accel/error.hpp>
#include <accel/metrics.hpp>

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

using namespace accel;
using namespace accel::metrics;
using namespace accel::test;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <class Metric>
double correlation(const std::vector<double>& x, const std::vector<double>& y) {
  Metric metric;
  metric.update(at::tensor(x), at::tensor(y));
  return metric.compute();
}

template <class Call>
std::string usage(Call call) {
  return error_text<UsageError>(call);
}

}  // namespace

TEST_CASE("means, weighted by numbers and by tensors") {
  Mean mean;
  mean.update(at::tensor({1.0F, 2.0F, 3.0F}));
  CHECK(mean.compute() == 2.0);
  mean.update(6.0, 3.0);
  CHECK(mean.compute() == 4.0);
  mean.update(at::tensor({10, 100}), at::tensor({2.0, 0.0}));
  CHECK(mean.compute() == 5.5);
  mean.update(at::zeros({0}));
  CHECK(mean.compute() == 5.5);
}

TEST_CASE("small values are not lost beside large ones") {
  Mean mean;
  mean.update(1e16);
  for (int i = 0; i < 1000; ++i) mean.update(1.0);
  mean.update(-1e16);
  CHECK(mean.compute() * 1002 == doctest::Approx(1000.0).epsilon(1e-14));
}

TEST_CASE("values that are not finite show") {
  Mean mean;
  mean.update(kInfinity);
  mean.update(1.0);
  CHECK(mean.compute() == kInfinity);
  mean.update(kNaN);
  CHECK(std::isnan(mean.compute()));
}

TEST_CASE("merges, copies and resets of a mean") {
  Mean first;
  first.merge(Mean());
  CHECK(contains(usage([&] { (void)first.compute(); }), "Mean.compute: expected weights that do not sum to zero"));
  Mean second;
  second.update(4.0);
  first.merge(second);
  const Mean before = first;
  first.update(8.0);
  CHECK(first.compute() == 6.0);
  CHECK(before.compute() == 4.0);
  first.merge(first);
  CHECK(first.compute() == 6.0);
  first.reset();
  CHECK(contains(usage([&] { (void)first.compute(Group()); }), "numbers_test.cpp:"));
  CHECK(contains(usage([&] { first.update(1.0, -1.0); }), "finite weight of 0 or more, found -1"));
  CHECK(contains(usage([&] { first.update(at::zeros({2}), at::zeros({3})); }), "values and weights of one shape"));
  CHECK(contains(usage([&] { first.update(at::zeros({2}, at::kComplexFloat)); }), "dense real dtype"));
}

TEST_CASE("perplexity of logits, of logarithms of probabilities and of sums") {
  const at::Tensor probabilities = at::tensor({0.5, 0.25, 0.25, 0.125, 0.75, 0.125}).view({1, 2, 3});
  const at::Tensor targets = at::tensor({0, 2}, at::kLong).view({1, 2});
  Perplexity perplexity;
  perplexity.update(probabilities.log(), targets);  // 1/2 and 1/8
  CHECK(perplexity.compute() == doctest::Approx(4.0).epsilon(1e-15));
  perplexity.update(probabilities.log() + 7.0, targets);
  CHECK(perplexity.compute() == doctest::Approx(4.0).epsilon(1e-14));
  perplexity.update(std::log(16.0) * 4, 4);
  CHECK(perplexity.compute() == doctest::Approx(8.0).epsilon(1e-14));
  perplexity.update(at::full({}, std::log(8.0)), 1);
  CHECK(perplexity.compute() == doctest::Approx(8.0).epsilon(1e-7));
}

TEST_CASE("tokens to ignore may hold anything") {
  Perplexity perplexity;
  at::Tensor logits = at::zeros({3, 4});
  logits[1].fill_(kNaN);
  perplexity.update(logits, at::tensor({0, -100, 3}, at::kLong));
  CHECK(perplexity.compute() == doctest::Approx(4.0).epsilon(1e-7));
  Perplexity padded({.ignore_index = 0});
  padded.update(logits, at::tensor({0, 0, 3}, at::kInt));
  CHECK(padded.compute() == doctest::Approx(4.0).epsilon(1e-7));
  CHECK(contains(usage([&] { padded.merge(perplexity); }), "with ignore_index 0, found -100"));
}

TEST_CASE("perplexity refuses targets and shapes that do not fit") {
  Perplexity perplexity;
  CHECK(contains(usage([&] { (void)perplexity.compute(); }), "Perplexity.compute: expected tokens, found none"));
  CHECK(contains(usage([&] {
                   perplexity.update(at::zeros({2, 4}), at::tensor({0, 4}, at::kLong));
                 }),
                 "Perplexity.update: expected class indices in [0, 4), found reference 4 at index 1"));
  CHECK(contains(usage([&] { perplexity.update(at::zeros({3, 4}), at::zeros({2}, at::kLong)); }), "[3, 4] Float"));
  CHECK(contains(usage([&] { perplexity.update(at::zeros({2}), 2); }), "found [2] Float on cpu and 2"));
  CHECK(contains(usage([&] { perplexity.update(1.0, -1); }), "and -1"));
  CHECK(contains(usage([&] { (void)perplexity.compute(); }), "found none"));
}

TEST_CASE("correlations of few pairs") {
  CHECK(correlation<Pearson>({1, 2, 3}, {2, 4, 6}) == 1.0);
  CHECK(correlation<Pearson>({1, 2, 3}, {3, 2, 1}) == -1.0);
  CHECK(correlation<Pearson>({1, 2, 3, 4}, {1, 3, 2, 4}) == doctest::Approx(0.8).epsilon(1e-15));
  CHECK(correlation<Pearson>({1e100, 2e100, 4e100}, {1e100, 2e100, 4e100}) == doctest::Approx(1.0).epsilon(1e-15));
  CHECK(correlation<Spearman>({1, 10, 100, 1000}, {1, 3, 2, 4}) == doctest::Approx(0.8).epsilon(1e-15));
  CHECK(correlation<Spearman>({1, 2, 3}, {-5, 0, 1e9}) == 1.0);
  // Ranks 1.5 1.5 3 and 1 2.5 2.5: 0.75 / 1.5
  CHECK(correlation<Spearman>({7, 7, 9}, {1, 2, 2}) == 0.5);
}

TEST_CASE("values that are all equal, or not numbers, have no correlation") {
  Pearson pearson;
  Spearman spearman;
  // Means of 0.1 are rounded, so that distances from them are not zero.
  for (int batch = 1; batch < 20; ++batch) {
    pearson.update(at::rand({batch}), at::full({batch}, 0.1, at::kDouble));
    spearman.update(at::rand({batch}), at::full({batch}, 0.1, at::kDouble));
  }
  CHECK(std::isnan(pearson.compute()));
  CHECK(std::isnan(spearman.compute()));
  CHECK(std::isnan(correlation<Pearson>({1, kNaN, 2}, {1, 2, 3})));
  CHECK(std::isnan(correlation<Spearman>({1, kNaN, 2}, {1, 2, 3})));
}

TEST_CASE("correlations: chunks, merges, copies, resets and errors") {
  const at::Tensor x = at::tensor({1.0, 2.0, 3.0, 4.0});
  const at::Tensor y = at::tensor({1.0, 3.0, 2.0, 4.0});
  const auto check = [&](auto first, auto second, const std::string& name) {
    CHECK(contains(usage([&] { (void)first.compute(); }), name + ".compute: expected two pairs or more"));
    at::Tensor batch = x.narrow(0, 0, 1).clone();
    first.update(batch, y.narrow(0, 0, 1));
    batch.fill_(100.0);  // the loop's buffer, used again
    first.merge(second);
    CHECK(contains(usage([&] { (void)first.compute(); }), "found fewer"));
    second.update(x.narrow(0, 1, 3), y.narrow(0, 1, 3));
    const auto before = second;
    second.merge(first);
    CHECK(second.compute() == doctest::Approx(0.8).epsilon(1e-15));
    CHECK(before.compute() == 0.5);
    second.merge(second);
    CHECK(second.compute() == doctest::Approx(0.8).epsilon(1e-15));
    second.reset();
    CHECK(contains(usage([&] { (void)second.compute(); }), "found fewer"));
    CHECK(contains(usage([&] { first.update(x, y.unsqueeze(1)); }), name + ".update: expected predictions and ref"));
    CHECK(contains(usage([&] { first.update(x, at::Tensor()); }), "references of a dense real dtype, found an undef"));
  };
  check(Pearson(), Pearson(), "Pearson");
  check(Spearman(), Spearman(), "Spearman");
}
