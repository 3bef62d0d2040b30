#pragma once

#include "data/file_bytes.hpp"

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>

namespace accel::detail {

/// The array of a .npy file, over its bytes where that can be (see tensor_over).
/// @throws DataError  it is none, or of a dtype that tensors lack, or longer or shorter than its header says.
at::Tensor read_npy(const FilePlace& place, const FileBytes& file);

/// The header of a .npy file for a dense tensor in C order. @throws UsageError  NumPy lacks its dtype.
std::string npy_header(const char* call, const at::Tensor& tensor);

/// On the CPU, contiguous, without lazy conjugation. @throws UsageError  undefined or not dense.
at::Tensor npy_ready(const char* call, const at::Tensor& tensor);

/// The values of such a tensor.
std::string_view bytes_of(const at::Tensor& tensor);

}  // namespace accel::detail
