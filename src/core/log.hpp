#pragma once

#include "core/message.hpp"

#include <string_view>

namespace accel::detail {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

/// Writes one whole line to stderr if ACCEL_LOG (debug, info, warning, error; default warning) lets it through. One
/// write call a line, so that lines of different ranks do not mix. Thread-safe; works before anything is initialised.
void log(LogLevel level, Site site, std::string_view call, std::string_view text);

/// As log, but each `key` only once per process: for notices that would repeat with every window.
void log_once(std::string_view key, LogLevel level, Site site, std::string_view call, std::string_view text);

}  // namespace accel::detail
