#pragma once

#include "comm/check.hpp"

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace accel::detail {

/// What a rank tells of a tensor before tensors of unknown shapes travel. A rank whose tensor cannot be sent says so,
/// so that all ranks throw together and none waits.
struct TensorHeader {
  static constexpr std::size_t kMostDimensions = 14;
  static constexpr std::int32_t kNotSendable = -1;

  std::int32_t dtype = kNotSendable;
  std::int32_t root = 0;  ///< of calls that have one
  std::int64_t dimensions = 0;
  std::array<std::int64_t, kMostDimensions> sizes{};

  [[nodiscard]] c10::IntArrayRef shape() const { return {sizes.data(), static_cast<std::size_t>(dimensions)}; }
  [[nodiscard]] std::int64_t rows() const { return dimensions == 0 ? 1 : sizes[0]; }

  /// Equal but for dimension 0.
  [[nodiscard]] bool fits(const TensorHeader& other) const;
};

/// Headers of all ranks, and the numbers that each gave with it.
struct TensorHeaders {
  std::vector<TensorHeader> of;
  std::vector<std::vector<std::int64_t>> numbers;
};

/// What is wrong with a tensor that a header is to tell of; empty if nothing is.
std::string defect_for_header(const at::Tensor& tensor, const char* argument);

/// @param defect  why the tensor cannot be sent, or empty
TensorHeader header_of(const at::Tensor& tensor, const std::string& defect);

/// Collective; all ranks give equally many numbers.
TensorHeaders exchange_headers(const TensorHeader& mine, const std::vector<std::int64_t>& numbers,
                               const CallSite& site);

/// @throws UsageError  on all ranks: one of them cannot send (its own error is `defect`), or two do not fit.
void check_headers(const CallSite& site, const TensorHeaders& headers, const std::string& defect);

/// The tensors of `rows` that lie behind one another in `buffer`, as views of it.
std::vector<at::Tensor> rows_of(const at::Tensor& buffer, const std::vector<std::int64_t>& rows, bool scalars);

/// A buffer for so many rows like those of `tensor`.
at::Tensor buffer_for(const at::Tensor& tensor, const std::vector<std::int64_t>& rows);

/// What numbers_of() has for one row; a tensor without dimensions is one row.
std::int64_t numbers_per_row(const at::Tensor& tensor);

}  // namespace accel::detail
