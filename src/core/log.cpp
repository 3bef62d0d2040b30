#include "core/log.hpp"

#include "core/env.hpp"

#include <unistd.h>
#include <mutex>
#include <set>
#include <string>

namespace accel::detail {
namespace {

LogLevel threshold() {
  static const LogLevel level = [] {
    const auto text = env_text("ACCEL_LOG").value_or("warning");
    if (text == "debug") return LogLevel::kDebug;
    if (text == "info") return LogLevel::kInfo;
    if (text == "error") return LogLevel::kError;
    return LogLevel::kWarning;
  }();
  return level;
}

const char* tag(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug: ";
    case LogLevel::kInfo:
      return "";
    case LogLevel::kWarning:
      return "warning: ";
    case LogLevel::kError:
      return "error: ";
  }
  return "";
}

}  // namespace

void log(LogLevel level, Site site, std::string_view call, std::string_view text) {
  if (level < threshold()) return;
  const std::string line = message(site, call, cat(tag(level), text, "\n"));
  // A short or failed write to stderr has no better place to be reported.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

void log_once(std::string_view key, LogLevel level, Site site, std::string_view call, std::string_view text) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>> seen;
  {
    const std::lock_guard lock(mutex);
    if (!seen.emplace(key).second) return;
  }
  log(level, site, call, text);
}

}  // namespace accel::detail
