#include "data/npy_header.hpp"

#include "core/message.hpp"

#include <charconv>
#include <set>

namespace accel::detail {
namespace {

constexpr const char* kSaveAgain = "save it again with numpy.save";
constexpr std::string_view kMagic = "\x93NUMPY";

// The literal of a Python dict with three known keys:
// {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class DictReader {
 public:
  DictReader(const FilePlace& place, std::string_view text) : place_(place), text_(text), rest_(text) {}

  NpyHeader read() {
    demand("{");
    std::set<std::string> keys;
    while (!take("}")) {
      const std::string key = quoted();
      demand(":");
      read_value(key);
      keys.insert(key);
      if (!take(",") && !peek("}")) fail();
    }
    if (keys.size() != 3) fail();
    return header_;
  }

 private:
  void read_value(const std::string& key) {
    if (key == "descr") {
      if (peek("["))
        place_.fail("an array of numbers", cat("records: ", excerpt(rest_)), "save each field as an array of its own");
      header_.type = quoted();
    } else if (key == "fortran_order") {
      header_.fortran_order = take("True");
      if (!header_.fortran_order) demand("False");
    } else if (key == "shape") {
      read_shape();
    } else {
      fail();
    }
  }

  void read_shape() {
    demand("(");
    header_.shape.clear();
    while (!take(")")) {
      skip_spaces();
      std::int64_t size = -1;
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), size);
      if (error != std::errc() || size < 0) fail();
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      take("L");  // whole numbers as Python 2 wrote them
      header_.shape.push_back(size);
      if (!take(",") && !peek(")")) fail();
    }
  }

  std::string quoted() {
    skip_spaces();
    const char quote = rest_.empty() ? '\0' : rest_.front();
    if (quote != '\'' && quote != '"') fail();
    const std::size_t end = rest_.find(quote, 1);
    if (end == std::string_view::npos) fail();
    std::string text(rest_.substr(1, end - 1));
    rest_.remove_prefix(end + 1);
    return text;
  }

  void skip_spaces() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\n')) rest_.remove_prefix(1);
  }
  bool peek(std::string_view word) {
    skip_spaces();
    return rest_.starts_with(word);
  }
  bool take(std::string_view word) {
    if (!peek(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  void demand(std::string_view word) {
    if (!take(word)) fail();
  }
  [[noreturn]] void fail() const {
    place_.fail("a header with descr, fortran_order and shape", excerpt(text_), kSaveAgain);
  }

  const FilePlace& place_;
  std::string_view text_;
  std::string_view rest_;
  NpyHeader header_;
};

}  // namespace

NpyHeader parse_npy_header(const FilePlace& place, std::string_view bytes) {
  if (!bytes.starts_with(kMagic) || bytes.size() < 8)
    place.fail("a .npy file, which begins with \\x93NUMPY and a version", excerpt(bytes.substr(0, 8)), kSaveAgain);
  const auto version = static_cast<unsigned char>(bytes[6]);
  if (version < 1 || version > 3) place.fail("format version 1, 2 or 3", cat(int{version}), kSaveAgain);
  const std::size_t digits = version == 1 ? 2 : 4;
  const std::size_t begin = kMagic.size() + 2 + digits;
  std::size_t length = 0;
  for (std::size_t i = begin; i > begin - digits; --i)
    length = length * 256 + (i <= bytes.size() ? static_cast<unsigned char>(bytes[i - 1]) : 0U);
  if (bytes.size() < begin || bytes.size() - begin < length)
    place.fail(cat("a header of ", begin + length, " bytes"), cat("the end of the file after ", bytes.size(), " bytes"),
               "the file was cut short: copy or save it again");
  NpyHeader header = DictReader(place, bytes.substr(begin, length)).read();
  header.data_at = begin + length;
  return header;
}

}  // namespace accel::detail
