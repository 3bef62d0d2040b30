#include "comm/check.hpp"

#include "comm/group_impl.hpp"

#include <accel/error.hpp>

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/ScalarType.h>

namespace accel::detail {
namespace {

bool can_travel(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Double:
    case c10::ScalarType::Float:
    case c10::ScalarType::Half:
    case c10::ScalarType::BFloat16:
    case c10::ScalarType::Long:
    case c10::ScalarType::Int:
    case c10::ScalarType::Short:
    case c10::ScalarType::Char:
    case c10::ScalarType::Byte:
    case c10::ScalarType::Bool:
    case c10::ScalarType::ComplexDouble:
    case c10::ScalarType::ComplexFloat:
      return true;
    default:
      return false;
  }
}

// Broadcasted views (expand) name one element many times; what a write to them means is undefined.
bool overlaps_itself(const at::Tensor& tensor) {
  if (tensor.is_contiguous()) return false;
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim)
    if (tensor.size(dim) > 1 && tensor.stride(dim) == 0) return true;
  return false;
}

}  // namespace

void usage_error(const CallSite& site, const std::string& text) {
  throw UsageError(message(site_of(site.group), site.call, cat(text, place(site.where))));
}

std::string defect_of(const at::Tensor& tensor, const char* argument) {
  if (!tensor.defined()) return cat("expected a tensor as `", argument, "`, found an undefined one; give it a value");
  if (tensor.layout() != c10::kStrided)
    return cat("expected a dense `", argument, "`, found layout ", tensor.layout(),
               "; convert it, as in tensor.to_dense()");
  if (!can_travel(tensor.scalar_type()))
    return cat("expected float64/32/16, bfloat16, complex128/64, int8..int64, uint8 or bool as dtype of `", argument,
               "`, found ", c10::toString(tensor.scalar_type()), "; convert it with tensor.to(...)");
  if (tensor.is_conj())
    return cat("expected numbers as they lie in memory as `", argument, "`, found a lazily conjugated view; give ",
               "tensor.resolve_conj()");
  return {};
}

void check_tensor(const CallSite& site, const at::Tensor& tensor, const char* argument) {
  if (const std::string defect = defect_of(tensor, argument); !defect.empty()) usage_error(site, defect);
}

void check_output(const CallSite& site, const at::Tensor& tensor, const char* argument) {
  check_tensor(site, tensor, argument);
  if (overlaps_itself(tensor))
    usage_error(site, cat("expected `", argument, "` to have memory for each of its elements, found an expanded view ",
                          "(strides ", tensor.strides(), "); give tensor.contiguous()"));
}

at::Tensor numbers_of(const at::Tensor& tensor) {
  return tensor.is_complex() ? at::view_as_real(tensor.detach()) : tensor;
}

void check_reduce(const CallSite& site, const at::Tensor& tensor, const ReduceSpec& spec) {
  const bool sums = spec.op == ReduceOp::kSum || spec.op == ReduceOp::kAvg;
  if (tensor.is_complex()) {
    if (!sums)
      usage_error(site, cat("expected kSum or kAvg for complex numbers, found another operation on ",
                            c10::toString(tensor.scalar_type()),
                            "; gather the tensors with all_gather and combine them, or reduce abs() and angle()"));
    return;
  }
  if (spec.op != ReduceOp::kAvg && spec.factor == 1.0) return;
  if (!tensor.is_floating_point())
    usage_error(site, cat("expected a floating dtype for ", spec.op == ReduceOp::kAvg ? "kAvg" : "a factor", ", found ",
                          c10::toString(tensor.scalar_type()), "; use kSum, or convert with tensor.to(at::kFloat)"));
}

std::string defect_of_rank(const Group& group, int rank, const char* argument) {
  if (rank >= 0 && rank < group.size()) return {};
  return cat("expected `", argument, "` in 0..", group.size() - 1, ", found ", rank,
             "; ranks are counted within the group");
}

void check_rank(const CallSite& site, int rank, const char* argument) {
  if (const std::string defect = defect_of_rank(site.group, rank, argument); !defect.empty()) usage_error(site, defect);
}

void check_gathered(const CallSite& site, const at::Tensor& large, const char* large_name, const at::Tensor& small,
                    const char* small_name) {
  const int size = site.group.size();
  if (large.numel() != size * small.numel())
    usage_error(
        site, cat("expected `", large_name, "` with ", size, " x ", small.numel(), " elements (`", small_name,
                  "` has shape ", small.sizes(), "), found shape ", large.sizes(), "; give it the shape [size, ...]"));
  if (large.scalar_type() != small.scalar_type() || large.device() != small.device())
    usage_error(site, cat("expected `", large_name, "` and `", small_name, "` of one dtype on one device, found ",
                          c10::toString(large.scalar_type()), " on ", large.device(), " and ",
                          c10::toString(small.scalar_type()), " on ", small.device(), "; convert one of them"));
}

void check_exchanged(const CallSite& site, const at::Tensor& output, const at::Tensor& input) {
  const int size = site.group.size();
  if (input.dim() == 0 || input.size(0) % size != 0)
    usage_error(site, cat("expected `input` of shape [", size, " x n, ...], found shape ", input.sizes(),
                          "; pad dimension 0, or give a list of tensors, one for each rank"));
  if (output.sizes() != input.sizes() || output.scalar_type() != input.scalar_type() ||
      output.device() != input.device())
    usage_error(
        site, cat("expected `output` like `input`, of shape ", input.sizes(), ", ", c10::toString(input.scalar_type()),
                  " on ", input.device(), ", found ", output.sizes(), ", ", c10::toString(output.scalar_type()), " on ",
                  output.device(), "; make it with at::empty_like(input)"));
  const at::MemOverlapStatus overlap = at::get_overlap_status(output, input);
  if (input.numel() > 0 && (overlap == at::MemOverlapStatus::Full || overlap == at::MemOverlapStatus::Partial))
    usage_error(site,
                "expected `output` in memory of its own, found that it shares some with `input`; make it with "
                "at::empty_like(input)");
}

Channel& channel_for(const CallSite& site, const c10::Device& device) {
  Channel* channel = site.group.impl().channel(device.type());
  if (channel == nullptr)
    usage_error(site, cat("expected a tensor on a device that this group serves, found ", device,
                          "; move it with tensor.to(...)"));
  return *channel;
}

void mark_written(const at::Tensor& tensor) {
  if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
}

}  // namespace accel::detail
