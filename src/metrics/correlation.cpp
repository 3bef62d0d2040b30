// Pearson's and Spearman's correlation, which is Pearson's of ranks.
#include "metrics/metric_call.hpp"

#include <accel/metrics_numbers.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace accel::metrics {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr const char* kTooFew =
    "expected two pairs or more, found fewer; a correlation needs two: call update with more";

// Moments are [10], float64: the count; means of x and y; sums of squared distances from them, of x and y; the sum of
// products of distances; smallest x and y; largest x and y, which tell values that are all equal from values that
// rounding keeps apart.
at::Tensor no_moments() {
  return at::cat(
      {at::zeros({6}, at::kDouble), at::full({2}, kInfinity, at::kDouble), at::full({2}, -kInfinity, at::kDouble)});
}

// @param pairs  [n, 2], n > 0
at::Tensor moments_of(const at::Tensor& pairs) {
  const at::Tensor mean = pairs.mean(0);
  const at::Tensor apart = pairs - mean;
  const at::Tensor count = at::full({1}, static_cast<double>(pairs.size(0)), mean.options());
  return at::cat({count, mean, apart.square().sum(0), apart.prod(1).sum(0, true), pairs.amin(0), pairs.amax(0)});
}

at::Tensor add_moments(const at::Tensor& moments, const at::Tensor& more) {
  if (!moments.defined()) return more;
  if (!more.defined()) return moments;
  const at::Tensor here = moments.to(more.device());
  const at::Tensor before = here.narrow(0, 0, 1);
  const at::Tensor added = more.narrow(0, 0, 1);
  const at::Tensor count = before + added;
  // Ranks without pairs: no division by zero.
  const at::Tensor share = added / count.clamp_min(1.0);
  const at::Tensor apart = more.narrow(0, 1, 2) - here.narrow(0, 1, 2);
  const at::Tensor products = at::cat({apart.square(), apart.prod(0, true)}) * (before * share);
  return at::cat({count, here.narrow(0, 1, 2) + apart * share, here.narrow(0, 3, 3) + more.narrow(0, 3, 3) + products,
                  at::minimum(here.narrow(0, 6, 2), more.narrow(0, 6, 2)),
                  at::maximum(here.narrow(0, 8, 2), more.narrow(0, 8, 2))});
}

at::Tensor pairs_of(const char* call, const at::Tensor& predictions, const at::Tensor& references) {
  detail::check_pair(call, "predictions", predictions, "references", references);
  return at::stack({predictions.reshape({-1}).to(at::kDouble), references.reshape({-1}).to(at::kDouble)}, 1);
}

// @param products, first, second  sums of products and of squares of distances from the means
double correlation_of(double products, double first, double second) {
  const double squares = first * second;
  // One root, so that equal sums give 1 exactly; two where their product leaves the range of numbers.
  const double norm = std::isnormal(squares) ? std::sqrt(squares) : std::sqrt(first) * std::sqrt(second);
  const double correlation = products / norm;
  // Rounding may lead a little outside.
  return std::isnan(correlation) ? correlation : std::clamp(correlation, -1.0, 1.0);
}

// Twice the distance of each value's rank from the mean rank: whole numbers, so that their sums are exact.
std::vector<double> ranks_of(const at::Tensor& values) {
  const auto count = static_cast<std::size_t>(values.numel());
  const auto* x = values.data_ptr<double>();
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [x](std::size_t a, std::size_t b) { return x[a] < x[b]; });
  std::vector<double> ranks(count);
  for (std::size_t first = 0, last = 0; first < count; first = last) {
    while (last < count && x[order[last]] == x[order[first]]) ++last;
    // Equal values at places first .. last-1 share the rank (first + 1 + last) / 2; the mean rank is (count + 1) / 2.
    const double rank = static_cast<double>(first + last) - static_cast<double>(count);
    for (std::size_t place = first; place < last; ++place) ranks[order[place]] = rank;
  }
  return ranks;
}

double rank_correlation(const at::Tensor& pairs) {
  if (pairs.isnan().any().item<bool>()) return kNaN;
  const std::vector<double> x = ranks_of(pairs.select(1, 0).contiguous());
  const std::vector<double> y = ranks_of(pairs.select(1, 1).contiguous());
  const double xx = std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
  const double yy = std::inner_product(y.begin(), y.end(), y.begin(), 0.0);
  if (xx == 0.0 || yy == 0.0) return kNaN;
  return correlation_of(std::inner_product(x.begin(), x.end(), y.begin(), 0.0), xx, yy);
}

}  // namespace

void Pearson::update(const at::Tensor& predictions, const at::Tensor& references) {
  const at::NoGradGuard no_grad;
  const at::Tensor pairs = pairs_of("Pearson.update", predictions, references);
  if (pairs.size(0) > 0) moments_ = add_moments(moments_, moments_of(pairs));
}

void Pearson::merge(const Pearson& other) {
  const at::NoGradGuard no_grad;
  moments_ = add_moments(moments_, other.moments_);
}

void Pearson::reset() {
  moments_.reset();
}

double Pearson::score(const detail::MetricCall& call) const {
  call.check("Pearson\n", {});
  const at::Tensor all = call.fold(moments_.defined() ? moments_ : no_moments(), add_moments).contiguous();
  const auto* m = all.data_ptr<double>();
  if (m[0] < 2.0) call.fail(kTooFew);
  if (m[6] == m[8] || m[7] == m[9]) return kNaN;
  return correlation_of(m[5], m[3], m[4]);
}

double Pearson::compute() const {
  return score({"Pearson.compute"});
}
double Pearson::compute(const Group& group, SourceLocation where) const {
  return score({"Pearson.compute", &group, &where});
}

void Spearman::update(const at::Tensor& predictions, const at::Tensor& references) {
  const at::NoGradGuard no_grad;
  const at::Tensor pairs = pairs_of("Spearman.update", predictions, references);
  if (pairs.size(0) > 0) pairs_.push_back(pairs);
}

void Spearman::merge(const Spearman& other) {
  const std::vector<at::Tensor> more = other.pairs_;  // a copy, since the other may be this one
  pairs_.insert(pairs_.end(), more.begin(), more.end());
}

void Spearman::reset() {
  pairs_.clear();
}

double Spearman::score(const detail::MetricCall& call) const {
  const at::NoGradGuard no_grad;
  call.check("Spearman\n", {});
  // Batches may have come on several devices.
  std::vector<at::Tensor> mine{at::zeros({0, 2}, at::kDouble)};
  for (const at::Tensor& each : pairs_) mine.push_back(each.cpu());
  const at::Tensor all = call.rows(at::cat(mine));
  if (all.size(0) < 2) call.fail(kTooFew);
  return rank_correlation(all);
}

double Spearman::compute() const {
  return score({"Spearman.compute"});
}
double Spearman::compute(const Group& group, SourceLocation where) const {
  return score({"Spearman.compute", &group, &where});
}

}  // namespace accel::metrics
