#include <accel/json_dataset.hpp>

#include "core/message.hpp"
#include "data/file_bytes.hpp"
#include "data/number_column.hpp"
#include "runtime/session.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string_view>

namespace accel {
namespace {

using detail::cat;
using Json = nlohmann::json;

constexpr const char* kCall = "load_json_lines";
constexpr const char* kRemedy = "correct the line, or read the field as another JsonType or dtype";

// Values inside each other are not written out: nlohmann does that by recursion, and a damaged line can be deeper than
// the stack.
std::string excerpt(const Json& value) {
  const bool nested = std::any_of(value.begin(), value.end(), [](const Json& part) { return part.is_structured(); });
  if (nested && value.is_array()) return cat("a list of ", value.size(), value.size() == 1 ? " value" : " values");
  if (nested) return cat("an object of ", value.size(), value.size() == 1 ? " field" : " fields");
  return detail::excerpt(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

// What nlohmann says, behind its prefix "[json.exception.parse_error.101] parse error at line 1, column 5: ".
std::string reason(const Json::parse_error& error) {
  const std::string_view text = error.what();
  const std::size_t at = text.find(": ");
  return std::string(at == std::string_view::npos ? text : text.substr(at + 2));
}

const Json* find_deep(const Json& object, const Json::json_pointer& pointer) {
  try {
    return object.contains(pointer) ? &object.at(pointer) : nullptr;
  } catch (const Json::exception&) {
    return nullptr;  // a place in a list that is beyond every number
  }
}

// One field, as it is read from each object.
class FieldReader {
 public:
  FieldReader(const JsonField& field, const std::optional<double>& missing)
      : field_(field), missing_(missing), numbers_(kCall, field.name, field.dtype) {
    if (!field.name.starts_with('/')) return;
    try {
      pointer_ = Json::json_pointer(field.name);
    } catch (const Json::exception& e) {
      detail::job_usage_error(kCall, cat("expected a JSON pointer in a name that begins with a slash, found \"",
                                         field.name, "\"; write ~ in keys as ~0 and / as ~1"));
    }
  }

  void add(const Json& object, const detail::FilePlace& place);
  void move_into(Table& table, std::size_t rows);

 private:
  [[nodiscard]] const Json* find(const Json& object) const;
  void add_vector(const Json& value, const detail::FilePlace& place);
  void add_number_list(const Json& value, const detail::FilePlace& place);
  void add_text_list(const Json& value, const detail::FilePlace& place);
  bool add_number(const Json& value);
  [[noreturn]] void refuse(std::string_view expected, std::string_view found, const detail::FilePlace& place) const {
    place.fail(cat(expected, " as \"", field_.name, "\""), found, kRemedy);
  }

  const JsonField& field_;
  const std::optional<double>& missing_;
  std::optional<Json::json_pointer> pointer_;
  std::optional<std::size_t> length_;  // of each kVector
  detail::NumberColumn numbers_;
  std::vector<std::string> texts_;
  std::vector<std::vector<double>> number_lists_;
  std::vector<std::vector<std::string>> text_lists_;
};

const Json* FieldReader::find(const Json& object) const {
  if (pointer_) return find_deep(object, *pointer_);
  const auto found = object.find(field_.name);
  return found == object.end() ? nullptr : &*found;
}

void FieldReader::add(const Json& object, const detail::FilePlace& place) {
  const Json* const value = find(object);
  const bool absent = value == nullptr || value->is_null();
  if (absent && field_.type == JsonType::kNumber && missing_) {
    if (!numbers_.add(*missing_))
      refuse(numbers_.expected(), cat("none, and JsonLinesOptions::missing is ", *missing_), place);
    return;
  }
  if (value == nullptr) place.fail(cat("a field \"", field_.name, "\""), "none", "complete the object");
  switch (field_.type) {
    case JsonType::kText:
      if (!value->is_string()) refuse("a text", excerpt(*value), place);
      texts_.push_back(value->get<std::string>());
      break;
    case JsonType::kNumber:
      if (!add_number(*value)) refuse(numbers_.expected(), excerpt(*value), place);
      break;
    case JsonType::kVector:
      add_vector(*value, place);
      break;
    case JsonType::kNumberList:
      add_number_list(*value, place);
      break;
    case JsonType::kTextList:
      add_text_list(*value, place);
      break;
  }
}

bool FieldReader::add_number(const Json& value) {
  if (value.is_boolean())
    return numbers_.dtype() == c10::kBool && numbers_.add(static_cast<std::int64_t>(value.get<bool>()));
  if (value.is_number_float()) return numbers_.add(value.get<double>());
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX))
    return numbers_.add(value.get<double>());
  return value.is_number_integer() && numbers_.add(value.get<std::int64_t>());
}

void FieldReader::add_vector(const Json& value, const detail::FilePlace& place) {
  if (!value.is_array()) refuse("a list of numbers", excerpt(value), place);
  if (length_.value_or(value.size()) != value.size())
    place.fail(cat("a list of ", *length_, " numbers, as before, as \"", field_.name, "\""), cat(value.size()),
               "give all lists one length, or read the field as JsonType::kNumberList");
  length_ = value.size();
  for (const Json& element : value)
    if (!add_number(element))
      refuse(cat("a list with ", numbers_.expected(), " in each place"), excerpt(element), place);
}

void FieldReader::add_number_list(const Json& value, const detail::FilePlace& place) {
  if (!value.is_array()) refuse("a list of numbers", excerpt(value), place);
  auto& list = number_lists_.emplace_back();
  for (const Json& element : value) {
    if (!element.is_number()) refuse("a list of numbers", excerpt(element), place);
    list.push_back(element.get<double>());
  }
}

void FieldReader::add_text_list(const Json& value, const detail::FilePlace& place) {
  if (!value.is_array()) refuse("a list of texts", excerpt(value), place);
  auto& list = text_lists_.emplace_back();
  for (const Json& element : value) {
    if (!element.is_string()) refuse("a list of texts", excerpt(element), place);
    list.push_back(element.get<std::string>());
  }
}

void FieldReader::move_into(Table& table, std::size_t rows) {
  const std::string& name = field_.name;
  if (field_.type == JsonType::kText) table.texts[name] = std::move(texts_);
  if (field_.type == JsonType::kNumberList) table.number_lists[name] = std::move(number_lists_);
  if (field_.type == JsonType::kTextList) table.text_lists[name] = std::move(text_lists_);
  if (field_.type == JsonType::kNumber) table.numbers[name] = numbers_.tensor();
  if (field_.type == JsonType::kVector)
    table.numbers[name] =
        numbers_.tensor().reshape({static_cast<std::int64_t>(rows), static_cast<std::int64_t>(length_.value_or(0))});
}

void check_fields(const std::vector<JsonField>& fields) {
  if (fields.empty())
    detail::job_usage_error(kCall, "expected fields in JsonLinesOptions, found none; name those to be read");
  std::set<std::string> names;
  for (const JsonField& field : fields)
    if (!names.insert(field.name).second)
      detail::job_usage_error(
          kCall, cat("expected fields of different names, found \"", field.name, "\" twice; name each once"));
}

Json parsed(std::string_view line, const detail::FilePlace& place) {
  Json object;
  try {
    object = Json::parse(line);
  } catch (const Json::parse_error& e) {
    place.fail("a JSON object", cat("at column ", e.byte, ": ", reason(e)), "correct the line");
  } catch (const Json::exception& e) {
    place.fail("a JSON object", e.what(), "correct the line");
  }
  if (!object.is_object()) place.fail("a JSON object", excerpt(object), "write one object on each line");
  return object;
}

}  // namespace

Table load_json_lines(const std::string& file, const JsonLinesOptions& options) {
  check_fields(options.fields);
  const detail::FilePlace place{kCall, file};
  std::vector<FieldReader> readers;
  for (const JsonField& field : options.fields) readers.emplace_back(field, options.missing);
  const detail::FileBytes bytes = detail::map_or_unpack(place);
  const std::string_view text = detail::without_mark(bytes.bytes);
  std::size_t rows = 0;
  for (std::size_t at = 0, number = 1; at < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const detail::FilePlace here = place.at_line(number);
    const Json object = parsed(line, here);
    for (FieldReader& reader : readers) reader.add(object, here);
    ++rows;
  }
  if (rows == 0) place.fail("JSON objects", "empty lines alone", "write it again");
  Table table;
  for (FieldReader& reader : readers) reader.move_into(table, rows);
  return table;
}

}  // namespace accel
