#include <accel/tree.hpp>

#include "core/message.hpp"
#include "runtime/session.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>

#include <string>

namespace accel::detail {
namespace {

std::string words(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  return cat(c10::toString(tensor.scalar_type()), " ", tensor.sizes(), " on ", tensor.device());
}

bool fit(const at::Tensor& a, const at::Tensor& b, std::size_t first_dimension) {
  return a.defined() == b.defined() &&
         (!a.defined() || (a.scalar_type() == b.scalar_type() && a.device() == b.device() && a.dim() == b.dim() &&
                           a.sizes().slice(first_dimension) == b.sizes().slice(first_dimension)));
}

// Undefined in all of them: undefined in the result.
std::vector<at::Tensor> checked(const char* call, const std::vector<const at::Tensor*>& tensors, const char* demand,
                                const char* remedy, bool rows) {
  const at::Tensor& first = *tensors.front();
  const std::size_t first_dimension = rows && first.defined() && first.dim() > 0 ? 1 : 0;
  std::vector<at::Tensor> checked;
  for (std::size_t which = 0; which < tensors.size(); ++which) {
    const at::Tensor& tensor = *tensors[which];
    if (!fit(first, tensor, first_dimension))
      job_usage_error(call, cat("expected ", demand, ", found ", words(first), " in tree 0 and ", words(tensor),
                                " in tree ", which, "; ", remedy));
    if (tensor.defined()) checked.push_back(rows && tensor.dim() == 0 ? tensor.unsqueeze(0) : tensor);
  }
  return checked;
}

}  // namespace

at::Tensor concatenate_rows(const std::vector<const at::Tensor*>& tensors) {
  const auto parts =
      checked("concatenate", tensors, "tensors of one dtype, device and shape but for dimension 0 in all trees",
              "convert or pad them", true);
  return parts.empty() ? at::Tensor() : at::cat(parts);
}

at::Tensor stack_samples(const std::vector<const at::Tensor*>& tensors) {
  const auto parts = checked("stack", tensors, "tensors of one dtype, device and shape in all samples",
                             "pad or convert them in a collate function", false);
  return parts.empty() ? at::Tensor() : at::stack(parts);
}

void trees_differ(const char* call, std::size_t which, const char* what) {
  job_usage_error(call, cat("expected trees that are alike, found that tree ", which, " differs from tree 0 in ", what,
                            "; give trees of one structure"));
}

void no_trees(const char* call) {
  job_usage_error(call, "expected at least one tree, found none; the result would have no shape");
}

void check_slice(std::int64_t begin, std::int64_t end) {
  if (begin < 0 || begin > end)
    job_usage_error("slice_tensors", cat("expected rows [begin, end) with 0 <= begin <= end, found [", begin, ", ", end,
                                         "); count from the first row"));
}

}  // namespace accel::detail
