#include "data/number_column.hpp"

#include "core/message.hpp"
#include "runtime/session.hpp"

#include <ATen/ops/empty.h>

#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <locale>
#include <sstream>
#include <utility>

namespace accel::detail {
namespace {

template <class T>
std::pair<std::int64_t, std::int64_t> limits() {
  return {std::numeric_limits<T>::min(), std::numeric_limits<T>::max()};
}

std::pair<std::int64_t, std::int64_t> limits_of(const char* call, std::string_view name, c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Bool:
      return {0, 1};
    case c10::ScalarType::Byte:
      return limits<std::uint8_t>();
    case c10::ScalarType::Char:
      return limits<std::int8_t>();
    case c10::ScalarType::Short:
      return limits<std::int16_t>();
    case c10::ScalarType::Int:
      return limits<std::int32_t>();
    case c10::ScalarType::Long:
      return limits<std::int64_t>();
    case c10::ScalarType::Half:
    case c10::ScalarType::BFloat16:
    case c10::ScalarType::Float:
    case c10::ScalarType::Double:
      return {0, 0};
    default:
      job_usage_error(call, cat("expected bool, uint8, a signed integer or a floating type for the numbers of \"", name,
                                "\", found ", c10::toString(dtype), "; convert the tensor afterwards"));
  }
}

// from_chars knows no plus sign.
std::string_view without_plus(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  return text;
}

// The whole text as a number.
template <class T>
bool parse(std::string_view text, T& value) {
  text = without_plus(text);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

// As `parse`, but what is nearer to zero than a double can be is zero: from_chars has one error for that and for what
// is too large, and leaves it to others to tell which.
bool parse_real(std::string_view text, double& value) {
  if (parse(text, value)) return true;
  text = without_plus(text);
  const char* const end = text.data() + text.size();
  if (const auto result = std::from_chars(text.data(), end, value);
      result.ec != std::errc::result_out_of_range || result.ptr != end)
    return false;
  std::istringstream stream{std::string(text)};
  stream.imbue(std::locale::classic());
  return (stream >> value) && std::abs(value) < 1;
}

template <class T>
at::Tensor copied(const std::vector<T>& values, c10::ScalarType dtype) {
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(values.size())}, c10::CppTypeToScalarType<T>::value);
  if (!values.empty()) std::memcpy(tensor.mutable_data_ptr(), values.data(), values.size() * sizeof(T));
  return tensor.to(dtype);
}

}  // namespace

NumberColumn::NumberColumn(const char* call, std::string_view name, c10::ScalarType dtype)
    : dtype_(dtype), floating_(c10::isFloatingType(dtype)) {
  std::tie(least_, most_) = limits_of(call, name, dtype);
}

bool NumberColumn::add(std::string_view text) {
  text = trimmed(text);
  if (floating_) {
    double value = 0;
    return parse_real(text, value) && add(value);
  }
  if (dtype_ == c10::kBool && (text == "true" || text == "True")) text = "1";
  if (dtype_ == c10::kBool && (text == "false" || text == "False")) text = "0";
  std::int64_t value = 0;
  return parse(text, value) && add(value);
}

bool NumberColumn::add(double value) {
  if (!floating_) {
    // Beyond 2^53 a double may stand for another whole number than the one that was meant.
    constexpr double kExact = 9007199254740992.0;
    return std::trunc(value) == value && std::abs(value) <= kExact && add(static_cast<std::int64_t>(value));
  }
  reals_.push_back(value);
  return true;
}

bool NumberColumn::add(std::int64_t value) {
  if (floating_) return add(static_cast<double>(value));
  if (value < least_ || value > most_) return false;
  wholes_.push_back(value);
  return true;
}

std::string NumberColumn::expected() const {
  if (floating_) return "a number";
  if (dtype_ == c10::kBool) return "true, false, 1 or 0";
  return cat("a whole number in ", least_, " .. ", most_);
}

at::Tensor NumberColumn::tensor() const {
  return floating_ ? copied(reals_, dtype_) : copied(wholes_, dtype_);
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

}  // namespace accel::detail
