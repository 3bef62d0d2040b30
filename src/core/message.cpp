#include "core/message.hpp"

#include <accel/source_location.hpp>

namespace accel::detail {

std::string message(Site site, std::string_view call, std::string_view text) {
  return cat("accel[", site.rank, "/", site.size, "] ", call, ": ", text);
}

std::string grouped(long long number) {
  const std::string digits = std::to_string(number);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    const bool after_digit = !text.empty() && text.back() != '-';
    if (after_digit && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string place(const SourceLocation& where) {
  std::string_view file = where.file_name();
  if (file.empty()) return {};
  if (const auto slash = file.rfind('/'); slash != std::string_view::npos) file.remove_prefix(slash + 1);
  return cat(" (", file, ":", where.line(), ")");
}

std::pair<std::string, std::string> first_difference(const std::string& first, const std::string& second) {
  std::istringstream a(first);
  std::istringstream b(second);
  std::string line_a;
  std::string line_b;
  while (true) {
    const bool more_a = static_cast<bool>(std::getline(a, line_a));
    const bool more_b = static_cast<bool>(std::getline(b, line_b));
    if (!more_a) line_a = "(nothing)";
    if (!more_b) line_b = "(nothing)";
    if (line_a != line_b || (!more_a && !more_b)) return {line_a, line_b};
  }
}

std::uint64_t stable_hash(std::string_view text) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const unsigned char byte : text) hash = (hash ^ byte) * 1099511628211ULL;
  return hash;
}

}  // namespace accel::detail
