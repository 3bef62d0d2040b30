#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace accel::detail {

/// Where in a file something was expected, and by which call; for errors.
struct FilePlace {
  const char* call = "";
  std::string file;

  /// `file:line`, lines counted from 1.
  [[nodiscard]] FilePlace at_line(std::size_t line) const;
  /// `accel[rank/size] call: expected ... in file, found ...; remedy`. @throws DataError  always.
  [[noreturn]] void fail(std::string_view expected, std::string_view found, std::string_view remedy) const;
};

/// The bytes of a file and what keeps them there: a private mapping, which may be written to, or memory.
struct FileBytes {
  std::string_view bytes;
  std::shared_ptr<const void> owner;
};

/// @throws DataError  there is no such file, it is a directory or no regular file, it is empty, it cannot be read.
FileBytes map_file(const FilePlace& place);

/// As map_file; what begins as a gzip file is unpacked into memory.
FileBytes map_or_unpack(const FilePlace& place);

/// Bytes in memory, as a file.
FileBytes in_memory(std::string bytes);

/// Without a byte order mark of UTF-8.
std::string_view without_mark(std::string_view text);

/// A tensor over bytes of a file, in C order, from `offset` on; they are copied where they lie at an odd address or
/// `swapped` (of the other byte order). The bytes must be there: `shape` was checked.
at::Tensor tensor_over(const FileBytes& file, std::size_t offset, c10::IntArrayRef shape, c10::ScalarType dtype,
                       bool swapped);

/// Turns the bytes of each of `count` numbers of `width` bytes around.
void swap_bytes(char* first, std::size_t count, std::size_t width);

/// The product of the sizes, times `width`. False where that is beyond 2^62, or would be without the sizes that are 0.
bool bytes_of_shape(c10::IntArrayRef shape, std::size_t width, std::size_t& bytes);

/// Bytes for an error text: at most 40, with what is not printable as dots.
std::string excerpt(std::string_view text);

}  // namespace accel::detail
