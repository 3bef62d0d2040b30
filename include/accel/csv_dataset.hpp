#pragma once

#include <accel/export.hpp>
#include <accel/table.hpp>
#include <accel/tensor_dataset.hpp>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace accel {

/// A column, by its name in the header row or by its place, counted from 0.
struct CsvColumn {
  // NOLINTBEGIN(google-explicit-constructor): a name or a place stands where a column is wanted
  CsvColumn(const char* name) : key(std::string(name)) {}
  CsvColumn(std::string name) : key(std::move(name)) {}
  CsvColumn(int place) : key(place) {}
  // NOLINTEND(google-explicit-constructor)

  std::variant<std::string, int> key;
};

/// A column of numbers with its dtype: bool (true, false, 1, 0), an integer type but unsigned ones above 8 bits, or a
/// floating type.
struct CsvNumber : CsvColumn {
  // NOLINTBEGIN(google-explicit-constructor)
  CsvNumber(const char* name, c10::ScalarType type = c10::kFloat) : CsvColumn(name), dtype(type) {}
  CsvNumber(std::string name, c10::ScalarType type = c10::kFloat) : CsvColumn(std::move(name)), dtype(type) {}
  CsvNumber(int place, c10::ScalarType type = c10::kFloat) : CsvColumn(place), dtype(type) {}
  // NOLINTEND(google-explicit-constructor)

  c10::ScalarType dtype;
};

struct CsvOptions {
  std::vector<CsvNumber> numbers =
      {};  ///< as in {"height", {"label", at::kLong}}; no column named at all: all, float32
  std::vector<CsvColumn> texts = {};
  bool header = true;    ///< the first record names the columns; else their names are their places, "0", "1", ...
  char separator = ',';  ///< '\t' for TSV
  char quote = '"';      ///< '\0': quotes are characters as others, as in many TSV files
  /// In place of an empty field of a number, as NaN; without it, that is an error.
  std::optional<double> missing = std::nullopt;
};

/// Reads a file of comma-separated values (RFC 4180): fields in quotes may hold separators, line breaks and, doubled,
/// quotes. Lines end with LF or CRLF; empty ones are skipped. Spaces around numbers are left out, texts stay as they
/// are. A byte order mark of UTF-8 is left out; a gzip file is unpacked. Local.
/// @throws DataError   the file cannot be read, has no rows, or a record is malformed, of another length or not a
///                     number where one should be; names file and line.
/// @throws UsageError  a column that is not there or is there twice, a dtype that no text can become.
[[nodiscard]] ACCEL_API Table load_csv(const std::string& file, const CsvOptions& options = {});

/// The columns of `options.numbers`, or all, as one tensor [N, F] in their order there or in the file.
/// @throws DataError, UsageError  as load_csv; columns of texts, or of different dtypes.
[[nodiscard]] ACCEL_API at::Tensor load_csv_matrix(const std::string& file, const CsvOptions& options = {});

/// A CSV file in memory as a data set with an index, with batches of type Table; see load_csv and TensorDataset.
class CsvDataset : public TensorDataset<Table> {
 public:
  explicit CsvDataset(const std::string& file, const CsvOptions& options = {})
      : TensorDataset<Table>(load_csv(file, options)) {}
};

}  // namespace accel
