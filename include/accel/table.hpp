#pragma once

#include <accel/export.hpp>

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace accel {

/// Columns by name, as files of records are read (csv_dataset.hpp, json_dataset.hpp); also a batch of their rows. A
/// tree (tree.hpp).
struct Table {
  std::map<std::string, at::Tensor> numbers;  ///< [N], or [N, L] of lists of one length
  std::map<std::string, std::vector<std::string>> texts;
  std::map<std::string, std::vector<std::vector<double>>> number_lists;  ///< of any lengths
  std::map<std::string, std::vector<std::vector<std::string>>> text_lists;

  /// Columns of `numbers` beside each other: [N, F], in the order of `names`; of the dtype that all of them fit in, as
  /// torch promotes types. A column [N, L] takes L places.
  /// @throws UsageError  no names, or there is no such column.
  [[nodiscard]] ACCEL_API at::Tensor matrix(const std::vector<std::string>& names) const;
};

inline auto accel_fields(Table& table) {
  return std::tie(table.numbers, table.texts, table.number_lists, table.text_lists);
}

}  // namespace accel
