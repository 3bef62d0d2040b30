#pragma once

#include <accel/export.hpp>

#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace accel {

struct TextDatasetOptions {
  bool skip_empty = false;  ///< lines without a character are no samples
};

/// The lines of a text file, as a data set with an index. Lines end with a line feed or with carriage return and line
/// feed, neither of which belongs to the line; the last one may end with the file. A byte order mark of UTF-8 is left
/// out, other bytes are not looked at.
///
/// The file is mapped and its lines are counted once: lines are read from disk when they are asked for. It must not
/// become shorter meanwhile; what replaces it under its name is not seen. A gzip file is unpacked into memory.
/// Copies share the file and the index (8 bytes a line), and all functions may be called by several threads.
class ACCEL_API TextDataset {
 public:
  using BatchType = std::vector<std::string>;

  /// @throws DataError  the file cannot be read, or has no lines.
  explicit TextDataset(const std::string& file, const TextDatasetOptions& options = {});

  /// @throws UsageError  an index is not below size().
  [[nodiscard]] std::vector<std::string> get_batch(c10::ArrayRef<std::size_t> indices) const;
  [[nodiscard]] std::size_t size() const;

  /// A line without a copy; valid as long as this data set or a copy of it. @throws UsageError  as get_batch.
  [[nodiscard]] std::string_view line(std::size_t index) const;

 private:
  struct Lines;
  std::shared_ptr<const Lines> lines_;
};

}  // namespace accel
