#include "data/csv_reader.hpp"

#include <algorithm>

namespace accel::detail {

bool CsvReader::at_line_end() const {
  const std::string_view rest = text_.substr(at_, 2);
  return rest.empty() || rest[0] == '\n' || rest == "\r\n" || rest == "\r";
}

// Steps over the end of a line, or over a separator: then the record goes on.
bool CsvReader::ends_line() {
  if (!at_line_end()) {
    ++at_;
    return false;
  }
  at_ = std::min(text_.size(), at_ + (text_.substr(at_, 1) == "\r" ? 2 : 1));
  ++line_;
  return true;
}

std::string_view CsvReader::plain_field() {
  const std::size_t first = at_;
  for (; at_ < text_.size() && text_[at_] != separator_ && text_[at_] != '\n'; ++at_)
    if (quote_ != '\0' && text_[at_] == quote_)
      place_.at_line(line_).fail("quotes around whole fields", excerpt(text_.substr(first, at_ + 1 - first)),
                                 "quote the field and double the quotes inside, or set CsvOptions::quote to '\\0'");
  if (at_ > first && text_[at_ - 1] == '\r' && (at_ == text_.size() || text_[at_] == '\n')) --at_;
  return text_.substr(first, at_ - first);
}

std::string_view CsvReader::quoted_field() {
  const std::size_t opened = line_;
  std::size_t first = ++at_;
  std::string* joined = nullptr;  // the pieces before doubled quotes, each with one of the quotes
  for (;; ++at_) {
    if (at_ >= text_.size())
      place_.at_line(opened).fail("a closing quote", "the end of the file",
                                  "close the field that begins here, or set CsvOptions::quote to '\\0'");
    if (text_[at_] == '\n') ++line_;
    if (text_[at_] != quote_) continue;
    if (text_.substr(at_ + 1, 1) != std::string_view(&quote_, 1)) break;
    if (joined == nullptr) joined = &unquoted_.emplace_back();
    joined->append(text_.substr(first, at_ + 1 - first));
    first = ++at_ + 1;
  }
  std::string_view field = text_.substr(first, at_ - first);
  ++at_;
  if (!at_line_end() && text_[at_] != separator_)
    place_.at_line(line_).fail("a separator or the end of the line behind a closing quote",
                               excerpt(text_.substr(at_, text_.find('\n', at_) - at_)),
                               "double the quotes inside quoted fields");
  return joined == nullptr ? field : joined->append(field);
}

bool CsvReader::next() {
  while (at_ < text_.size() && at_line_end()) ends_line();
  fields_.clear();
  unquoted_.clear();
  if (at_ >= text_.size()) return false;
  record_line_ = line_;
  do
    fields_.push_back(quote_ != '\0' && text_.substr(at_, 1) == std::string_view(&quote_, 1) ? quoted_field()
                                                                                             : plain_field());
  while (!ends_line());
  return true;
}

}  // namespace accel::detail
