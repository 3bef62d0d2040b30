#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace accel::detail {

/// The variable's text; nothing if unset or empty.
std::optional<std::string> env_text(const char* name);

/// The variable as a whole number. @throws UsageError  it is set and is no number; names variable and text.
std::optional<std::int64_t> env_integer(const char* name);

/// 1/true/yes/on, 0/false/no/off in any case. @throws UsageError  it is set and is none of these.
std::optional<bool> env_flag(const char* name);

}  // namespace accel::detail
