#include <accel/mnist.hpp>
#include <accel/tensor_dataset.hpp>

#include "core/message.hpp"
#include "data/csv_reader.hpp"
#include "data/file_bytes.hpp"

#include <ATen/ops/empty.h>
#include <torch/data/example.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace accel {
namespace {

using detail::cat;
using detail::FileBytes;
using detail::FilePlace;

constexpr std::int64_t kSide = 28;
constexpr std::size_t kPixels = kSide * kSide;
constexpr const char* kWriteAgain = "load it again, or name the right file";
constexpr const char* kCsvRemedy = "write a label and 784 pixels on each line";

c10::ScalarType dtype_of(unsigned char code, const FilePlace& place) {
  switch (code) {
    case 0x08:
      return c10::kByte;
    case 0x09:
      return c10::kChar;
    case 0x0b:
      return c10::kShort;
    case 0x0c:
      return c10::kInt;
    case 0x0d:
      return c10::kFloat;
    case 0x0e:
      return c10::kDouble;
    default:
      place.fail("an IDX type of 8, 9, 11, 12, 13 or 14 in the third byte", cat(static_cast<int>(code)), kWriteAgain);
  }
}

std::int64_t big_endian(std::string_view bytes) {
  std::int64_t number = 0;
  for (const char byte : bytes.substr(0, 4)) number = number * 256 + static_cast<unsigned char>(byte);
  return number;
}

// Two bytes of zero, the type, the number of dimensions; each size in four bytes; the values, all big-endian.
at::Tensor read_idx(const FilePlace& place) {
  const FileBytes file = detail::map_or_unpack(place);
  const std::string_view bytes = file.bytes;
  if (bytes.size() < 4 || bytes[0] != 0 || bytes[1] != 0)
    place.fail("an IDX file, which begins with two bytes of zero", detail::excerpt(bytes.substr(0, 4)), kWriteAgain);
  const c10::ScalarType dtype = dtype_of(static_cast<unsigned char>(bytes[2]), place);
  const auto dimensions = static_cast<unsigned char>(bytes[3]);
  const std::size_t header = 4 + 4 * std::size_t{dimensions};
  if (bytes.size() < header)
    place.fail(cat("a header of ", header, " bytes for ", int{dimensions}, " dimensions"), cat(bytes.size(), " bytes"),
               kWriteAgain);
  std::vector<std::int64_t> shape;
  for (std::size_t i = 1; i <= dimensions; ++i) shape.push_back(big_endian(bytes.substr(4 * i)));
  const std::size_t width = c10::elementSize(dtype);
  std::size_t length = 0;
  if (!detail::bytes_of_shape(shape, width, length) || bytes.size() - header != length)
    place.fail(cat("values of shape ", c10::IntArrayRef(shape), " behind the header"),
               cat(bytes.size() - header, " bytes for them"), kWriteAgain);
  return detail::tensor_over(file, header, shape, dtype, width > 1);
}

at::Tensor read_images(const FilePlace& place) {
  at::Tensor images = read_idx(place);
  if (images.scalar_type() != c10::kByte || images.dim() != 3 || images.size(1) != kSide || images.size(2) != kSide)
    place.fail("uint8 images of shape [N, 28, 28]", cat(c10::toString(images.scalar_type()), " ", images.sizes()),
               "name the file of the images first, then that of the labels; for others use load_idx and TensorDataset");
  return images;
}

at::Tensor read_labels(const FilePlace& place, std::int64_t images) {
  const at::Tensor labels = read_idx(place);
  if (labels.scalar_type() != c10::kByte || labels.dim() != 1)
    place.fail("uint8 labels of shape [N]", cat(c10::toString(labels.scalar_type()), " ", labels.sizes()),
               "name the file of the images first, then that of the labels");
  if (labels.size(0) != images)
    place.fail(cat(images, " labels, one for each image"), cat(labels.size(0)), "name two files of the same split");
  return labels.to(at::kLong);
}

bool byte_of(std::string_view text, std::uint8_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

void read_row(const detail::CsvReader& reader, std::vector<std::uint8_t>& pixels, std::vector<std::uint8_t>& labels) {
  const auto& fields = reader.fields();
  if (fields.size() != kPixels + 1)
    reader.place().fail("785 fields, a label and 784 pixels", cat(fields.size()), kCsvRemedy);
  for (std::size_t i = 0; i <= kPixels; ++i) {
    std::uint8_t value = 0;
    if (!byte_of(fields[i], value))
      reader.place().fail(cat("a whole number in 0 .. 255 in field ", i), detail::excerpt(fields[i]), kCsvRemedy);
    (i == 0 ? labels : pixels).push_back(value);
  }
}

at::Tensor bytes_tensor(const std::vector<std::uint8_t>& values, c10::IntArrayRef shape) {
  at::Tensor tensor = at::empty(shape, at::kByte);
  std::memcpy(tensor.mutable_data_ptr<std::uint8_t>(), values.data(), values.size());
  return tensor;
}

}  // namespace

at::Tensor load_idx(const std::string& file) {
  return read_idx({"load_idx", file});
}

Mnist::Mnist(at::Tensor images, at::Tensor targets, const MnistOptions& options)
    : images_(std::move(images)), targets_(std::move(targets)), options_(options) {
  if (options.at_most == 0 || options.at_most >= size()) return;
  images_ = images_.narrow(0, 0, static_cast<std::int64_t>(options.at_most));
  targets_ = targets_.narrow(0, 0, static_cast<std::int64_t>(options.at_most));
}

Mnist::Mnist(const std::string& images_file, const std::string& labels_file, const MnistOptions& options)
    : Mnist([&] {
        const at::Tensor images = read_images({"Mnist", images_file});
        const at::Tensor labels = read_labels({"Mnist", labels_file}, images.size(0));
        return Mnist(images, labels, options);
      }()) {}

Mnist Mnist::from_csv(const std::string& file, const MnistOptions& options) {
  const FilePlace place{"Mnist::from_csv", file};
  const FileBytes bytes = detail::map_or_unpack(place);
  detail::CsvReader reader(place, detail::without_mark(bytes.bytes), ',', '"');
  std::vector<std::uint8_t> pixels;
  std::vector<std::uint8_t> labels;
  std::uint8_t first = 0;
  bool more = reader.next();
  // Names in place of numbers make a header row.
  if (more && !byte_of(reader.fields().front(), first)) more = reader.next();
  for (; more; more = reader.next()) read_row(reader, pixels, labels);
  if (labels.empty()) place.fail("images", "none", kCsvRemedy);
  const auto count = static_cast<std::int64_t>(labels.size());
  return Mnist(bytes_tensor(pixels, {count, kSide, kSide}), bytes_tensor(labels, {count}).to(at::kLong), options);
}

Mnist::BatchType Mnist::get_batch(c10::ArrayRef<std::size_t> indices) const {
  const detail::RowSelection selection(indices, size());
  at::Tensor images = selection.of(images_);
  if (options_.as_float) images = images.to(at::kFloat).div_(255.0);
  if (options_.channel) images = images.unsqueeze(1);
  return {std::move(images), selection.of(targets_)};
}

}  // namespace accel
