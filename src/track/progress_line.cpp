#include "track/progress_line.hpp"
#include "core/message.hpp"

#include <algorithm>
#include <cstdio>

namespace accel::detail {
namespace {

constexpr std::size_t kWidestBar = 30;
constexpr std::size_t kNarrowestBar = 5;

std::string rate_text(const ProgressFacts& facts) {
  if (facts.seconds <= 0.0 || facts.done == 0) return cat("? ", facts.unit, "/s");
  const double rate = static_cast<double>(facts.done) / facts.seconds;
  char text[32];
  std::snprintf(text, sizeof text, rate < 10.0 ? "%.2f" : rate < 100.0 ? "%.1f" : "%.0f", rate);
  return cat(text, " ", facts.unit, "/s");
}

std::string count_text(const ProgressFacts& facts) {
  return facts.total == 0 ? std::to_string(facts.done) : cat(facts.done, "/", facts.total);
}

std::string remaining_text(const ProgressFacts& facts) {
  if (facts.done == 0 || facts.done > facts.total) return "?";
  return clock_text(facts.seconds / static_cast<double>(facts.done) * static_cast<double>(facts.total - facts.done));
}

// A wrapped line cannot be redrawn in place. UTF-8 is cut between characters, each counted as one column.
std::string cut(std::string text, std::size_t columns) {
  std::size_t shown = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool continues = (static_cast<unsigned char>(text[at]) & 0xc0U) == 0x80U;
    if (!continues && shown++ == columns) return text.substr(0, at);
  }
  return text;
}

}  // namespace

std::string clock_text(double seconds) {
  const auto whole = static_cast<long long>(std::clamp(seconds, 0.0, 359999.0));
  char text[32];
  if (whole >= 3600)
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
  else
    std::snprintf(text, sizeof text, "%lld:%02lld", whole / 60, whole % 60);
  return text;
}

std::string progress_bar(const ProgressFacts& facts, std::size_t columns) {
  // cat and not a chain of +: g++ 12 sees an overlap in that and warns.
  const std::string label = facts.label.empty() ? std::string() : cat(facts.label, " ");
  const std::string remaining = facts.total == 0 ? std::string() : cat("<", remaining_text(facts));
  std::string numbers = cat(count_text(facts), " ", clock_text(facts.seconds), remaining, " ", rate_text(facts));
  if (!facts.status.empty()) numbers += cat(" ", facts.status);
  if (facts.total == 0) return cut(label + numbers, columns);

  const double part = std::min(1.0, static_cast<double>(facts.done) / static_cast<double>(facts.total));
  char percent[8];
  std::snprintf(percent, sizeof percent, "%3d%%", static_cast<int>(part * 100.0));
  const std::size_t rest = label.size() + 4 + 3 + numbers.size();  // percent, brackets, one space
  const std::size_t room = columns > rest ? columns - rest : 0;
  if (room < kNarrowestBar) return cut(cat(label, percent, " ", numbers), columns);
  const std::size_t width = std::min(room, kWidestBar);
  const auto filled = static_cast<std::size_t>(part * static_cast<double>(width));
  return cat(label, percent, "[", std::string(filled, '#'), std::string(width - filled, '.'), "] ", numbers);
}

std::string progress_summary(const ProgressFacts& facts) {
  const std::string label = facts.label.empty() ? std::string() : cat(facts.label, ": ");
  const std::string status = facts.status.empty() ? std::string() : cat(", ", facts.status);
  return cat(label, count_text(facts), " in ", clock_text(facts.seconds), ", ", rate_text(facts), status);
}

}  // namespace accel::detail
