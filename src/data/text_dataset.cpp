#include <accel/text_dataset.hpp>

#include "core/message.hpp"
#include "data/file_bytes.hpp"
#include "runtime/session.hpp"

namespace accel {

struct TextDataset::Lines {
  detail::FileBytes file;
  std::string_view text;
  std::vector<std::size_t> begins;  // of each line, in `text`

  // Where the line ends is looked up when it is read: one number a line is enough to keep.
  [[nodiscard]] std::string_view from(std::size_t begin) const {
    std::string_view line = text.substr(begin, text.find('\n', begin) - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    return line;
  }
};

TextDataset::TextDataset(const std::string& file, const TextDatasetOptions& options) {
  const detail::FilePlace place{"TextDataset", file};
  auto lines = std::make_shared<Lines>();
  lines->file = detail::map_or_unpack(place);
  lines->text = detail::without_mark(lines->file.bytes);
  for (std::size_t at = 0; at < lines->text.size();) {
    if (!options.skip_empty || !lines->from(at).empty()) lines->begins.push_back(at);
    const std::size_t end = lines->text.find('\n', at);
    at = end == std::string_view::npos ? lines->text.size() : end + 1;
  }
  if (lines->begins.empty()) place.fail("lines", "none but empty ones", "write it again, or keep empty lines");
  lines->begins.shrink_to_fit();
  lines_ = std::move(lines);
}

std::size_t TextDataset::size() const {
  return lines_->begins.size();
}

std::string_view TextDataset::line(std::size_t index) const {
  if (index >= size())
    detail::job_usage_error("TextDataset",
                            detail::cat("expected indices below ", size(), ", the number of lines, found ", index,
                                        "; take them from 0 on"));
  return lines_->from(lines_->begins[index]);
}

std::vector<std::string> TextDataset::get_batch(c10::ArrayRef<std::size_t> indices) const {
  std::vector<std::string> batch;
  batch.reserve(indices.size());
  for (const std::size_t index : indices) batch.emplace_back(line(index));
  return batch;
}

}  // namespace accel
