#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace accel::detail {

/// Numbers of one dtype that are read one by one, and become a tensor. `add` returns false, and adds nothing, where the
/// value is none of the dtype.
class NumberColumn {
 public:
  /// @throws UsageError  bool, int8 to int64, uint8 and floating types alone.
  NumberColumn(const char* call, std::string_view name, c10::ScalarType dtype);

  [[nodiscard]] bool add(std::string_view text);
  [[nodiscard]] bool add(double value);
  [[nodiscard]] bool add(std::int64_t value);

  /// As in "a whole number in 0 .. 255".
  [[nodiscard]] std::string expected() const;
  [[nodiscard]] std::size_t size() const { return floating_ ? reals_.size() : wholes_.size(); }
  [[nodiscard]] c10::ScalarType dtype() const { return dtype_; }

  /// [size()].
  [[nodiscard]] at::Tensor tensor() const;

 private:
  c10::ScalarType dtype_;
  bool floating_;
  std::int64_t least_ = 0;
  std::int64_t most_ = 0;
  std::vector<double> reals_;
  std::vector<std::int64_t> wholes_;
};

/// Without spaces and tabs around it.
std::string_view trimmed(std::string_view text);

}  // namespace accel::detail
