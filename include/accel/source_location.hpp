#pragma once

#include <cstdint>

namespace accel {

/// Where a call stands in the user's source. As std::source_location, which clang 14 does not have with the standard
/// library of g++; one type for all compilers, so that their objects link with each other.
class SourceLocation {
 public:
  constexpr SourceLocation() = default;

  /// As a default argument: the place of the call.
  static constexpr SourceLocation current(const char* file = __builtin_FILE(),
                                          std::uint_least32_t line = __builtin_LINE()) noexcept {
    SourceLocation here;
    here.file_name_ = file;
    here.line_ = line;
    return here;
  }

  [[nodiscard]] constexpr const char* file_name() const noexcept { return file_name_; }
  [[nodiscard]] constexpr std::uint_least32_t line() const noexcept { return line_; }

 private:
  const char* file_name_ = "";
  std::uint_least32_t line_ = 0;
};

}  // namespace accel
