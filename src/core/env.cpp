#include "core/env.hpp"

#include "core/message.hpp"

#include <accel/error.hpp>

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace accel::detail {

std::optional<std::string> env_text(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

std::optional<std::int64_t> env_integer(const char* name) {
  const auto text = env_text(name);
  if (!text) return std::nullopt;
  std::int64_t number = 0;
  const char* end = text->data() + text->size();
  const auto [rest, error] = std::from_chars(text->data(), end, number);
  if (error != std::errc{} || rest != end)
    throw UsageError(cat("accel: environment variable ", name, ": expected a whole number, found '", *text,
                         "'; set it to a number or unset it"));
  return number;
}

std::optional<bool> env_flag(const char* name) {
  auto text = env_text(name);
  if (!text) return std::nullopt;
  std::transform(text->begin(), text->end(), text->begin(), [](unsigned char c) { return std::tolower(c); });
  if (*text == "1" || *text == "true" || *text == "yes" || *text == "on") return true;
  if (*text == "0" || *text == "false" || *text == "no" || *text == "off") return false;
  throw UsageError(cat("accel: environment variable ", name, ": expected 1 or 0, found '", *text,
                       "'; set it to 1 or 0, or unset it"));
}

}  // namespace accel::detail
