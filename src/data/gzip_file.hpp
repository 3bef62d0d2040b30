#pragma once

#include <string>

namespace accel::detail {

/// What a gzip file holds. @throws std::runtime_error  it cannot be read or is damaged; says how.
std::string read_gzip(const std::string& path);

}  // namespace accel::detail
