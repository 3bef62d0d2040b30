#pragma once

#include "data/file_bytes.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace accel::detail {

/// What stands before the values of a .npy file.
struct NpyHeader {
  std::string type;  ///< as in "<f4"
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
  std::size_t data_at = 0;
};

/// @throws DataError  it is malformed.
NpyHeader parse_npy_header(const FilePlace& place, std::string_view bytes);

}  // namespace accel::detail
