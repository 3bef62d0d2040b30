#pragma once

#include "comm/channel.hpp"
#include "comm/ops.hpp"

#include <accel/source_location.hpp>

#include <ATen/core/Tensor.h>

#include <string>

namespace accel::detail {

/// Who is called, for the texts of errors.
struct CallSite {
  const char* call;
  const Group& group;
  const SourceLocation& where;
};

/// Everything here throws before anything is sent, so the group stays good.
[[noreturn]] void usage_error(const CallSite& site, const std::string& text);

/// What is wrong with a tensor that is to be sent; empty if nothing is.
std::string defect_of(const at::Tensor& tensor, const char* argument);

/// Defined, dense, strided, of a dtype that can travel.
void check_tensor(const CallSite& site, const at::Tensor& tensor, const char* argument);

/// As check_tensor, and no two elements share memory: results are written into it.
void check_output(const CallSite& site, const at::Tensor& tensor, const char* argument);

/// The numbers that travel for a checked tensor: of a complex one its real and imaginary parts ([..., 2], the same
/// memory), any other as it is.
at::Tensor numbers_of(const at::Tensor& tensor);

/// Averages and factors want floating or complex dtypes; complex numbers have no order, and products mix their parts.
void check_reduce(const CallSite& site, const at::Tensor& tensor, const ReduceSpec& spec);

void check_rank(const CallSite& site, int rank, const char* argument);

/// As check_rank, in words; empty if nothing is wrong.
std::string defect_of_rank(const Group& group, int rank, const char* argument);

/// `large` holds size x the elements of `small`, same dtype and device.
void check_gathered(const CallSite& site, const at::Tensor& large, const char* large_name, const at::Tensor& small,
                    const char* small_name);

/// `input` is [size x n, ...], `output` of the same shape, dtype and device, in memory of its own.
void check_exchanged(const CallSite& site, const at::Tensor& output, const at::Tensor& input);

/// The way of such tensors. @throws UsageError  the group has none.
Channel& channel_for(const CallSite& site, const c10::Device& device);

/// Values change under autograd's eyes: a tensor that it saved for backward must be seen to have changed.
void mark_written(const at::Tensor& tensor);

}  // namespace accel::detail
