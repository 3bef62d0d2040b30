#include "core/message.hpp"
#include "metrics/class_rows.hpp"
#include "metrics/metric_call.hpp"
#include "metrics/sums.hpp"
#include "runtime/session.hpp"

#include <accel/metrics_numbers.hpp>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

namespace accel::metrics {
using accel::detail::cat;
using accel::detail::job_usage_error;

namespace {

constexpr const char* kUpdate = "Perplexity.update";

void check_logits(const at::Tensor& logits, const at::Tensor& targets) {
  const bool defined = logits.defined() && targets.defined();
  if (!defined || !logits.is_floating_point() || !c10::isIntegralType(targets.scalar_type(), false) ||
      logits.device() != targets.device() || logits.dim() != targets.dim() + 1 || logits.size(-1) < 1 ||
      logits.sizes().slice(0, static_cast<std::size_t>(targets.dim())) != targets.sizes())
    job_usage_error(kUpdate, cat("expected floating logits [..., classes] and integer targets [...] on one device, "
                                 "found ",
                                 detail::text_of(logits), " and ", detail::text_of(targets),
                                 "; the classes come last: use movedim(1, -1) where they are dimension 1"));
}

}  // namespace

Perplexity::Perplexity(const PerplexityOptions& options) : options_(options) {}

void Perplexity::update(const at::Tensor& logits, const at::Tensor& targets) {
  const at::NoGradGuard no_grad;
  check_logits(logits, targets);
  const std::int64_t classes = logits.size(-1);
  const at::Tensor reference = targets.reshape({-1}).to(at::kLong);
  const at::Tensor valid =
      detail::valid_rows(at::zeros_like(reference), reference, {classes, options_.ignore_index, 0.0},
                         {kUpdate, updates_ + 1, detail::told_at_once(targets), fault_});
  const at::Tensor rows = logits.reshape({reference.numel(), classes});
  const at::Tensor logs = at::log_softmax(rows, 1, rows.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  const at::Tensor zeros = at::zeros_like(reference);
  const at::Tensor picked = logs.gather(1, at::where(valid, reference, zeros).unsqueeze(1)).squeeze(1).to(at::kDouble);
  // Chosen, not multiplied: logits of rows that are left out may be anything.
  const at::Tensor nll = at::where(valid, -picked, at::zeros_like(picked)).sum();
  sums_ = detail::add_sums(sums_, detail::sums_of(nll, valid.sum()));
  ++updates_;
}

void Perplexity::update(const at::Tensor& sum_nll, std::int64_t tokens) {
  const at::NoGradGuard no_grad;
  detail::check_real(kUpdate, "sum_nll", sum_nll);
  if (sum_nll.numel() != 1 || tokens < 0)
    job_usage_error(kUpdate, cat("expected one sum of negative log-likelihoods and a number of tokens, found ",
                                 detail::text_of(sum_nll), " and ", tokens, "; sum over the tokens of the batch"));
  sums_ = detail::add_sums(sums_, detail::sums_of(sum_nll, at::scalar_tensor(tokens, sum_nll.options())));
  ++updates_;
}

void Perplexity::update(double sum_nll, std::int64_t tokens) {
  update(at::scalar_tensor(sum_nll, at::kDouble), tokens);
}

std::string Perplexity::description() const {
  return cat("Perplexity\nignore_index ", options_.ignore_index, "\n");
}

std::string Perplexity::problem() const {
  return detail::fault_text(fault_);
}

void Perplexity::merge(const Perplexity& other) {
  const at::NoGradGuard no_grad;
  const detail::MetricCall call{"Perplexity.merge"};
  if (other.options_.ignore_index != options_.ignore_index)
    call.fail(cat("expected a metric with ignore_index ", options_.ignore_index, ", found ",
                  other.options_.ignore_index, "; make both with the same options"));
  call.check(description(), problem());
  call.check(description(), other.problem());
  sums_ = detail::add_sums(sums_, other.sums_);
  updates_ += other.updates_;
}

void Perplexity::reset() {
  updates_ = 0;
  sums_.reset();
  fault_.reset();
}

double Perplexity::score(const detail::MetricCall& call) const {
  call.check(description(), problem());
  const at::Tensor all = call.fold(sums_.defined() ? sums_ : detail::no_sums(), detail::add_sums);
  const double tokens = detail::total(all, 1);
  if (tokens == 0.0)
    call.fail("expected tokens, found none; call update first, and look whether ignore_index leaves any");
  return std::exp(detail::total(all, 0) / tokens);
}

double Perplexity::compute() const {
  return score({"Perplexity.compute"});
}
double Perplexity::compute(const Group& group, SourceLocation where) const {
  return score({"Perplexity.compute", &group, &where});
}

}  // namespace accel::metrics
