#include <accel/running_statistics.hpp>

#include "comm/ops.hpp"
#include "core/message.hpp"
#include "runtime/session.hpp"

#include <accel/error.hpp>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>
#include <torch/serialize/archive.h>

#include <utility>

namespace accel {
using detail::cat;
using detail::job_usage_error;

RunningStatistics::RunningStatistics(std::vector<std::int64_t> shape) : shape_(std::move(shape)) {
  for (const std::int64_t size : shape_)
    if (size < 0)
      job_usage_error("RunningStatistics", cat("expected the shape of one sample, found ", c10::IntArrayRef(shape_),
                                               "; give sizes of 0 or more"));
  merged_ = nothing();
  pending_ = nothing();
}

RunningStatistics::Moments RunningStatistics::nothing() const {
  const std::int64_t values = c10::multiply_integers(shape_);
  return {0, at::zeros({values}, at::kDouble), at::zeros({values}, at::kDouble)};
}

// New tensors, so that copies of these statistics stay as they are.
void RunningStatistics::add(Moments& to, const Moments& more) {
  if (more.count == 0) return;
  const auto before = static_cast<double>(to.count);
  const auto added = static_cast<double>(more.count);
  const at::Tensor apart = more.mean - to.mean;
  to.count += more.count;
  to.mean = to.mean + apart * (added / (before + added));
  to.squares = to.squares + more.squares + apart * apart * (before * added / (before + added));
}

void RunningStatistics::update(const at::Tensor& batch) {
  constexpr const char* kCall = "RunningStatistics.update";
  const at::NoGradGuard no_grad;
  if (!batch.defined() || batch.dim() < 1 || batch.sizes().slice(1) != c10::IntArrayRef(shape_) || batch.is_complex())
    job_usage_error(kCall, cat("expected a real batch of samples of shape ", c10::IntArrayRef(shape_), ", found ",
                               batch.defined() ? cat(batch.sizes(), " ", c10::toString(batch.scalar_type()))
                                               : std::string("an undefined tensor"),
                               "; the first dimension counts samples: use unsqueeze(0) for one"));
  const std::int64_t samples = batch.size(0);
  if (samples == 0) return;
  const at::Tensor rows = batch.to(at::TensorOptions(at::kCPU).dtype(at::kDouble)).reshape({samples, -1});
  const at::Tensor good = at::isfinite(rows).all(1);
  if (!good.all().item<bool>())
    job_usage_error(
        kCall, cat("expected finite values, found others in row ", good.logical_not().nonzero()[0].item<std::int64_t>(),
                   " of the batch; they would spoil the statistics of all ranks for good: drop the row"));
  const at::Tensor mean = rows.mean(0);
  add(pending_, {samples, mean, (rows - mean).square_().sum(0)});
}

void RunningStatistics::check_shapes(const Group& group, const SourceLocation& where) const {
  const auto texts = detail::all_gather_text(cat(c10::IntArrayRef(shape_)), Purpose::kControl, group, where);
  for (std::size_t rank = 1; rank < texts.size(); ++rank)
    if (texts[rank] != texts[0])
      throw UsageError(detail::message(
          detail::site_of(group), "RunningStatistics.merge",
          cat("expected samples of one shape on all ranks, found ", texts[0], " on rank 0 and ", texts[rank],
              " on rank ", rank, "; make the statistics alike on every rank", detail::place(where))));
}

void RunningStatistics::merge(const Group& group, SourceLocation where) {
  check_shapes(group, where);
  const at::NoGradGuard no_grad;
  const at::Tensor mine =
      at::cat({at::full({1}, static_cast<double>(pending_.count), at::kDouble), pending_.mean, pending_.squares})
          .unsqueeze(0)
          .to(detail::control_device(group));
  const std::int64_t values = pending_.mean.numel();
  // In the order of ranks: the same sums everywhere.
  for (const at::Tensor& each : detail::all_gather(mine, Purpose::kUser, group, where)) {
    const at::Tensor row = each.select(0, 0).cpu();
    add(merged_, {static_cast<std::int64_t>(row[0].item<double>()), row.narrow(0, 1, values),
                  row.narrow(0, 1 + values, values)});
  }
  pending_ = nothing();
}

at::Tensor RunningStatistics::mean() const {
  return merged_.mean.view(shape_).clone();
}
at::Tensor RunningStatistics::variance() const {
  if (merged_.count == 0) return at::ones(shape_, at::kDouble);
  return (merged_.squares / static_cast<double>(merged_.count)).view(shape_);
}
at::Tensor RunningStatistics::standard_deviation() const {
  return variance().sqrt_();
}

at::Tensor RunningStatistics::normalize(const at::Tensor& x, double epsilon, std::optional<double> clip) const {
  constexpr const char* kCall = "RunningStatistics.normalize";
  const auto dims = static_cast<std::int64_t>(shape_.size());
  if (!x.defined() || !x.is_floating_point() || x.dim() < dims ||
      x.sizes().slice(static_cast<std::size_t>(x.dim() - dims)) != c10::IntArrayRef(shape_))
    job_usage_error(
        kCall,
        cat("expected a floating tensor whose last dimensions are ", c10::IntArrayRef(shape_), ", found ",
            x.defined() ? cat(x.sizes(), " ", c10::toString(x.scalar_type())) : std::string("an undefined tensor"),
            "; give samples of the shape that the statistics were made for"));
  at::Tensor result = x.clone();
  if (merged_.count > 0) {
    const auto options = x.options().requires_grad(false);
    result = (x - mean().to(options)) / (variance() + epsilon).sqrt_().to(options);
  }
  return clip ? result.clamp(-*clip, *clip) : result;
}

void RunningStatistics::save(torch::serialize::OutputArchive& archive) const {
  if (pending_.count > 0)
    job_usage_error("RunningStatistics.save",
                    cat("expected statistics without pending samples, found ", pending_.count,
                        " of this rank that are not merged; call merge() on all ranks first, so that each sample of "
                        "each rank is saved once"));
  archive.write("shape", c10::IValue(shape_));
  archive.write("count", c10::IValue(merged_.count));
  archive.write("mean", merged_.mean, true);
  archive.write("squares", merged_.squares, true);
}

void RunningStatistics::load(torch::serialize::InputArchive& archive) {
  c10::IValue shape;
  c10::IValue count;
  Moments merged;
  const bool whole = archive.try_read("shape", shape) && archive.try_read("count", count) &&
                     archive.try_read("mean", merged.mean, true) && archive.try_read("squares", merged.squares, true);
  if (!whole || shape.toIntVector() != shape_)
    job_usage_error("RunningStatistics.load",
                    cat("expected an archive of samples of shape ", c10::IntArrayRef(shape_), ", found ",
                        whole ? cat(c10::IntArrayRef(shape.toIntVector())) : std::string("something else"),
                        "; load what torch::save wrote of statistics of that shape"));
  merged.count = count.toInt();
  merged.mean = merged.mean.cpu();
  merged.squares = merged.squares.cpu();
  merged_ = std::move(merged);
  pending_ = nothing();
}

}  // namespace accel
