#pragma once

#include <cstdint>
#include <string>

namespace accel::detail {

/// What one line of progress says.
struct ProgressFacts {
  std::string label = {};
  std::string unit = {};
  std::string status = {};
  std::uint64_t done = 0;
  std::uint64_t total = 0;  ///< 0: not known
  double seconds = 0.0;     ///< since the start
};

/// `0:07`, `12:34`, `1:02:03`; fractions are cut off.
std::string clock_text(double seconds);

/// The bar for a terminal, at most `columns` wide: the bar itself shrinks first, then the line is cut.
std::string progress_bar(const ProgressFacts& facts, std::size_t columns);

/// The same without a bar and without the remaining time, for a finished loop in a log.
std::string progress_summary(const ProgressFacts& facts);

}  // namespace accel::detail
