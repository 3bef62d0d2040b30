#pragma once

#include <accel/export.hpp>
#include <accel/table.hpp>
#include <accel/tensor_dataset.hpp>

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <vector>

namespace accel {

/// What a field of a JSON object is read as, and where in the Table it goes.
enum class JsonType {
  kText,        ///< a string; `texts`
  kNumber,      ///< a number, or true and false as bool; `numbers`, [N]
  kVector,      ///< a list of numbers, as long in all objects; `numbers`, [N, L]
  kNumberList,  ///< a list of numbers of any length; `number_lists`
  kTextList,    ///< a list of strings; `text_lists`
};

struct JsonField {
  /// Its name, which is its name in the Table as well; one that begins with a slash is a JSON pointer (RFC 6901) to
  /// something deeper, as in "/meta/score".
  std::string name;
  JsonType type = JsonType::kText;
  c10::ScalarType dtype = c10::kFloat;  ///< of kNumber and kVector; as CsvNumber's
};

struct JsonLinesOptions {
  std::vector<JsonField> fields;  ///< at least one; fields that are not named here are not looked at
  /// In place of a number (kNumber) that is null or not there, as NaN; without it, that is an error.
  std::optional<double> missing = std::nullopt;
};

/// Reads a file with one JSON object on each line; empty lines are skipped. A byte order mark of UTF-8 is left out; a
/// gzip file is unpacked. Local.
/// @throws DataError   the file cannot be read, has no objects, or a line is malformed or lacks a field of its type;
///                     names file, line and, for malformed JSON, column.
/// @throws UsageError  no fields, one named twice, a dtype that no number can become.
[[nodiscard]] ACCEL_API Table load_json_lines(const std::string& file, const JsonLinesOptions& options);

/// A JSON lines file in memory as a data set with an index, with batches of type Table; see load_json_lines and
/// TensorDataset.
class JsonLinesDataset : public TensorDataset<Table> {
 public:
  JsonLinesDataset(const std::string& file, const JsonLinesOptions& options)
      : TensorDataset<Table>(load_json_lines(file, options)) {}
};

}  // namespace accel
