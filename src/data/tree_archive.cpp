#include <accel/tree_archive.hpp>

#include "core/message.hpp"
#include "runtime/session.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

namespace accel::detail {
namespace {

constexpr std::string_view kMagic = "acceltre";
constexpr std::int64_t kUndefined = -1;
constexpr std::size_t kMostDimensions = 64;

constexpr std::array kDtypes = {
    c10::ScalarType::Byte,          c10::ScalarType::Char,        c10::ScalarType::Short,
    c10::ScalarType::Int,           c10::ScalarType::Long,        c10::ScalarType::UInt16,
    c10::ScalarType::UInt32,        c10::ScalarType::UInt64,      c10::ScalarType::Bool,
    c10::ScalarType::Half,          c10::ScalarType::BFloat16,    c10::ScalarType::Float,
    c10::ScalarType::Double,        c10::ScalarType::ComplexHalf, c10::ScalarType::ComplexFloat,
    c10::ScalarType::ComplexDouble, c10::ScalarType::Float8_e5m2, c10::ScalarType::Float8_e4m3fn};

bool can_travel(std::int64_t dtype) {
  return std::any_of(kDtypes.begin(), kDtypes.end(),
                     [dtype](c10::ScalarType each) { return static_cast<std::int64_t>(each) == dtype; });
}

// Undefined where the product is too large for memory.
std::optional<std::uint64_t> bytes_of_shape(const std::vector<std::int64_t>& shape, std::uint64_t itemsize) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  std::uint64_t bytes = itemsize;
  for (const std::int64_t size : shape) {
    if (bytes > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) / static_cast<std::uint64_t>(size))
      return std::nullopt;
    bytes *= static_cast<std::uint64_t>(size);
  }
  return bytes;
}

}  // namespace

TreeWriter::TreeWriter(std::string_view structure) : bytes_(kMagic) {
  text(structure);
}

void TreeWriter::numbers(const void* data, std::size_t bytes) {
  if (bytes > 0) bytes_.append(static_cast<const char*>(data), bytes);
}

void TreeWriter::count(std::size_t parts) {
  const std::uint64_t number = parts;
  numbers(&number, sizeof(number));
}

void TreeWriter::flag(bool value) {
  bytes_.push_back(value ? 1 : 0);
}

void TreeWriter::text(std::string_view text) {
  count(text.size());
  bytes_.append(text);
}

void TreeWriter::tensor(const at::Tensor& tensor) {
  const std::int64_t dtype = tensor.defined() ? static_cast<std::int64_t>(tensor.scalar_type()) : kUndefined;
  if (dtype != kUndefined && (tensor.layout() != c10::kStrided || !can_travel(dtype)))
    job_usage_error("pack", cat("expected dense tensors of numbers in an object that is sent, found layout ",
                                tensor.layout(), " and dtype ", c10::toString(tensor.scalar_type()),
                                "; convert the tensor, as in tensor.to_dense() or tensor.dequantize()"));
  numbers(&dtype, sizeof(dtype));
  if (dtype == kUndefined) return;
  count(static_cast<std::size_t>(tensor.dim()));
  numbers(tensor.sizes().data(), tensor.sizes().size() * sizeof(std::int64_t));
  const at::Tensor host = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous();
  numbers(host.const_data_ptr(), host.nbytes());
}

TreeReader::TreeReader(std::string_view bytes, std::string_view structure, c10::Device device, std::string_view origin)
    : bytes_(bytes), device_(device), origin_(origin) {
  if (bytes_.substr(0, kMagic.size()) != kMagic) fail("bytes of something else");
  bytes_.remove_prefix(kMagic.size());
  if (const std::string theirs = text(); theirs != structure)
    job_usage_error("unpack", cat("expected a tree of the same type on all ranks, found that of ", origin_, " to be ",
                                  theirs, " and this rank's ", structure, "; make them alike"));
}

void TreeReader::fail(std::string_view found) const {
  job_usage_error("unpack", cat("expected a tree as another rank packed it, found in ", origin_, " ", found,
                                "; run the same program on all ranks"));
}

std::string_view TreeReader::next(std::uint64_t bytes) {
  if (bytes > bytes_.size()) fail("an end before its parts were read");
  const std::string_view part = bytes_.substr(0, static_cast<std::size_t>(bytes));
  bytes_.remove_prefix(part.size());
  return part;
}

void TreeReader::numbers(void* data, std::size_t bytes) {
  const std::string_view part = next(bytes);
  if (bytes > 0) std::memcpy(data, part.data(), bytes);
}

std::size_t TreeReader::count() {
  std::uint64_t number = 0;
  numbers(&number, sizeof(number));
  if (number > bytes_.size()) fail("a count of parts that it does not have room for");
  return static_cast<std::size_t>(number);
}

bool TreeReader::flag() {
  const unsigned char byte = static_cast<unsigned char>(next(1).front());
  if (byte > 1) fail("a truth value that is neither");
  return byte == 1;
}

std::string TreeReader::text() {
  return std::string(next(count()));
}

at::Tensor TreeReader::tensor() {
  std::int64_t dtype = 0;
  numbers(&dtype, sizeof(dtype));
  if (dtype == kUndefined) return {};
  if (!can_travel(dtype)) fail("a tensor of no dtype");
  const std::size_t dimensions = count();
  if (dimensions > kMostDimensions) fail("a tensor of too many dimensions");
  std::vector<std::int64_t> shape(dimensions);
  numbers(shape.data(), dimensions * sizeof(std::int64_t));
  if (std::any_of(shape.begin(), shape.end(), [](std::int64_t size) { return size < 0; })) fail("a negative size");
  const auto type = static_cast<at::ScalarType>(dtype);
  const auto bytes = bytes_of_shape(shape, c10::elementSize(type));
  if (!bytes) fail("a tensor that is larger than memory");
  const std::string_view part = next(*bytes);
  const at::Tensor host = at::empty(shape, type);
  if (!part.empty()) std::memcpy(host.mutable_data_ptr(), part.data(), part.size());
  return host.to(device_);
}

void TreeReader::finish() const {
  if (!bytes_.empty()) fail("more than a tree");
}

}  // namespace accel::detail
