#pragma once

#include <accel/source_location.hpp>

#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

namespace accel::detail {

/// All arguments, streamed one after the other.
template <class... Parts>
std::string cat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

/// Whose call it is: the rank and size that error texts begin with.
struct Site {
  int rank = 0;
  int size = 1;
};

/// `accel[rank/size] call: text`, the shape of every error and log line.
std::string message(Site site, std::string_view call, std::string_view text);

/// `1,234,567`: numbers of bytes and calls in texts for people.
std::string grouped(long long number);

/// ` (file.cpp:12)`, where the user made the call; empty for calls from inside accel.
std::string place(const SourceLocation& where);

/// The first line in which two texts differ, of each; `(nothing)` where one has ended.
std::pair<std::string, std::string> first_difference(const std::string& first, const std::string& second);

/// FNV-1a: the same on every machine of a job, unlike std::hash.
std::uint64_t stable_hash(std::string_view text);

}  // namespace accel::detail
