#include <accel/csv_dataset.hpp>

#include "core/message.hpp"
#include "data/csv_reader.hpp"
#include "data/number_column.hpp"
#include "runtime/session.hpp"

#include <ATen/ops/stack.h>

#include <algorithm>
#include <set>
#include <string_view>

namespace accel {
namespace {

using detail::cat;

// A column that is read: numbers, or texts where there are no numbers.
struct Picked {
  std::size_t place = 0;
  std::string name;
  std::optional<detail::NumberColumn> numbers;
  std::vector<std::string> texts;
};

std::string in_quotes(std::string_view text) {
  return cat("\"", text, "\"");
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + in_quotes(name);
  return text;
}

class CsvLoader {
 public:
  CsvLoader(const char* call, const std::string& file, const CsvOptions& options)
      : place_{call, file},
        options_(options),
        bytes_(detail::map_or_unpack(place_)),
        reader_(place_, detail::without_mark(bytes_.bytes), options.separator, options.quote) {
    if (!reader_.next()) place_.fail("records", "empty lines alone", "write it again");
    name_columns();
    pick_columns();
    read_records();
  }

  std::vector<Picked>& columns() { return columns_; }

 private:
  void name_columns();
  void pick_columns();
  void pick(const CsvColumn& column, const c10::ScalarType* dtype);
  [[nodiscard]] std::size_t place_of(const CsvColumn& column) const;
  void read_records();
  void read_record();
  void add_number(Picked& column, std::string_view text);

  detail::FilePlace place_;
  const CsvOptions& options_;
  detail::FileBytes bytes_;
  detail::CsvReader reader_;
  std::size_t first_line_ = 0;
  std::vector<std::string> names_;
  std::vector<Picked> columns_;
};

void CsvLoader::name_columns() {
  first_line_ = reader_.line();
  for (const std::string_view field : reader_.fields())
    names_.push_back(options_.header ? std::string(field) : cat(names_.size()));
}

std::size_t CsvLoader::place_of(const CsvColumn& column) const {
  if (const int* place = std::get_if<int>(&column.key)) {
    if (*place < 0 || static_cast<std::size_t>(*place) >= names_.size())
      detail::job_usage_error(place_.call, cat("expected places of columns in 0 .. ", names_.size() - 1, " for ",
                                               place_.file, ", found ", *place, "; count from 0"));
    return static_cast<std::size_t>(*place);
  }
  const auto& name = std::get<std::string>(column.key);
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found == names_.end())
    detail::job_usage_error(place_.call, cat("expected a column of ", place_.file, ", found ", in_quotes(name),
                                             "; there are: ", listed(names_)));
  if (std::find(found + 1, names_.end(), name) != names_.end())
    detail::job_usage_error(place_.call, cat("expected one column ", in_quotes(name), " in ", place_.file,
                                             ", found several; name it by its place"));
  return static_cast<std::size_t>(found - names_.begin());
}

void CsvLoader::pick(const CsvColumn& column, const c10::ScalarType* dtype) {
  Picked picked;
  picked.place = place_of(column);
  picked.name = names_[picked.place];
  if (dtype != nullptr) picked.numbers.emplace(place_.call, picked.name, *dtype);
  columns_.push_back(std::move(picked));
}

void CsvLoader::pick_columns() {
  for (const CsvNumber& column : options_.numbers) pick(column, &column.dtype);
  for (const CsvColumn& column : options_.texts) pick(column, nullptr);
  if (columns_.empty()) {
    constexpr c10::ScalarType kDefault = c10::kFloat;
    for (std::size_t place = 0; place < names_.size(); ++place) pick(static_cast<int>(place), &kDefault);
  }
  std::set<std::string> seen;
  for (const Picked& column : columns_)
    if (!seen.insert(column.name).second)
      detail::job_usage_error(place_.call, cat("expected columns of different names, found ", in_quotes(column.name),
                                               " twice in ", place_.file, "; name each once, or rename one"));
}

void CsvLoader::read_records() {
  bool more = !options_.header || reader_.next();
  if (!more) place_.fail("records", "a header row alone", "write it again, or set CsvOptions::header to false");
  for (; more; more = reader_.next()) read_record();
}

void CsvLoader::read_record() {
  const auto& fields = reader_.fields();
  if (fields.size() != names_.size())
    reader_.place().fail(cat(names_.size(), " fields, as in line ", first_line_), cat(fields.size()),
                         "complete the line, or check CsvOptions::separator and quote");
  for (Picked& column : columns_) {
    const std::string_view text = fields[column.place];
    if (column.numbers)
      add_number(column, text);
    else
      column.texts.emplace_back(text);
  }
}

void CsvLoader::add_number(Picked& column, std::string_view text) {
  const bool replaced = options_.missing && detail::trimmed(text).empty();
  if (replaced ? column.numbers->add(*options_.missing) : column.numbers->add(text)) return;
  reader_.place().fail(
      cat(column.numbers->expected(), " in column ", in_quotes(column.name)),
      replaced ? cat("an empty field, and CsvOptions::missing is ", *options_.missing) : detail::excerpt(text),
      "correct the field, give the column another dtype, read it as text (CsvOptions::texts), or set "
      "CsvOptions::missing for empty ones");
}

}  // namespace

Table load_csv(const std::string& file, const CsvOptions& options) {
  CsvLoader loader("load_csv", file, options);
  Table table;
  for (Picked& column : loader.columns()) {
    if (column.numbers)
      table.numbers[column.name] = column.numbers->tensor();
    else
      table.texts[column.name] = std::move(column.texts);
  }
  return table;
}

at::Tensor load_csv_matrix(const std::string& file, const CsvOptions& options) {
  constexpr const char* kCall = "load_csv_matrix";
  if (!options.texts.empty())
    detail::job_usage_error(kCall, "expected columns of numbers alone, found CsvOptions::texts; load_csv reads both");
  for (const CsvNumber& column : options.numbers)
    if (column.dtype != options.numbers.front().dtype)
      detail::job_usage_error(
          kCall, cat("expected columns of one dtype, found ", c10::toString(options.numbers.front().dtype), " and ",
                     c10::toString(column.dtype), "; load_csv reads both"));
  CsvLoader loader(kCall, file, options);
  std::vector<at::Tensor> columns;
  for (const Picked& column : loader.columns()) columns.push_back(column.numbers->tensor());
  return at::stack(columns, 1);
}

}  // namespace accel
