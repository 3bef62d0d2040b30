#pragma once

#include "data/file_bytes.hpp"

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace accel::detail {

/// The records of comma-separated values (RFC 4180), one after the other. No library is taken for this: the one that
/// Debian has for quoted line breaks is LGPL and gives neither views nor places of errors.
class CsvReader {
 public:
  /// @param quote  '\0': none
  CsvReader(FilePlace place, std::string_view text, char separator, char quote)
      : place_(std::move(place)), text_(text), separator_(separator), quote_(quote) {}

  /// Reads the next record that is not an empty line; false at the end.
  /// @throws DataError  text before or behind quotes, or quotes that are not closed.
  bool next();

  /// The fields of the record, valid until the next one is read (those without doubled quotes as long as the text).
  [[nodiscard]] const std::vector<std::string_view>& fields() const { return fields_; }
  /// Where it begins.
  [[nodiscard]] FilePlace place() const { return place_.at_line(record_line_); }
  [[nodiscard]] std::size_t line() const { return record_line_; }

 private:
  std::string_view plain_field();
  std::string_view quoted_field();
  bool ends_line();
  [[nodiscard]] bool at_line_end() const;

  FilePlace place_;
  std::string_view text_;
  char separator_;
  char quote_;
  std::size_t at_ = 0;
  std::size_t line_ = 1;
  std::size_t record_line_ = 1;
  std::vector<std::string_view> fields_;
  std::deque<std::string> unquoted_;  // fields in which doubled quotes became single ones
};

}  // namespace accel::detail
