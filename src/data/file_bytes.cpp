#include "data/file_bytes.hpp"

#include <accel/error.hpp>

#include "core/message.hpp"
#include "data/gzip_file.hpp"
#include "runtime/session.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <functional>
#include <utility>

namespace accel::detail {
namespace {

constexpr const char* kCheckPath = "check the path";
constexpr std::size_t kExcerpt = 40;

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { ::close(number_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int number() const { return number_; }

 private:
  int number_;
};

// Opened without waiting: a named pipe would hold the program here until someone writes to it.
int open_file(const FilePlace& place) {
  const int number = ::open(place.file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (number < 0) place.fail("a file that can be read", std::strerror(errno), kCheckPath);
  return number;
}

std::size_t checked_size(const FilePlace& place, int number) {
  struct stat facts {};
  if (::fstat(number, &facts) != 0) place.fail("a file that can be read", std::strerror(errno), kCheckPath);
  if (S_ISDIR(facts.st_mode)) place.fail("a file", "a directory", "name a file inside it");
  if (!S_ISREG(facts.st_mode)) place.fail("a file", "a pipe or a device", "write its content to a file first");
  if (facts.st_size == 0) place.fail("data", "an empty file", "write it again");
  return static_cast<std::size_t>(facts.st_size);
}

}  // namespace

FilePlace FilePlace::at_line(std::size_t line) const {
  return {call, cat(file, ":", line)};
}

void FilePlace::fail(std::string_view expected, std::string_view found, std::string_view remedy) const {
  throw DataError(message(job_site(), call, cat("expected ", expected, " in ", file, ", found ", found, "; ", remedy)));
}

FileBytes map_file(const FilePlace& place) {
  const Descriptor file(open_file(place));
  const std::size_t size = checked_size(place, file.number());
  // Private and writable: users may work in place on what they loaded, and the file stays as it is.
  void* const address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.number(), 0);
  if (address == MAP_FAILED) place.fail("a file that can be mapped", std::strerror(errno), "free memory");
  const std::shared_ptr<const void> owner(address, [size](void* mapped) { ::munmap(mapped, size); });
  return {{static_cast<const char*>(address), size}, owner};
}

FileBytes map_or_unpack(const FilePlace& place) {
  FileBytes file = map_file(place);
  if (!file.bytes.starts_with("\x1f\x8b")) return file;
  try {
    file = in_memory(read_gzip(place.file));
  } catch (const std::exception& e) {
    place.fail("a whole gzip file", cat("that ", e.what()), "write or load it again");
  }
  if (file.bytes.empty()) place.fail("data", "a gzip file of nothing", "write it again");
  return file;
}

FileBytes in_memory(std::string bytes) {
  const auto kept = std::make_shared<const std::string>(std::move(bytes));
  return {*kept, kept};
}

std::string_view without_mark(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  return text;
}

at::Tensor tensor_over(const FileBytes& file, std::size_t offset, c10::IntArrayRef shape, c10::ScalarType dtype,
                       bool swapped) {
  const std::size_t width = c10::elementSize(dtype);
  char* const first = const_cast<char*>(file.bytes.data()) + offset;  // memory of ours, or a private mapping
  const bool aligned = reinterpret_cast<std::uintptr_t>(first) % width == 0;
  if (aligned && !swapped)
    return at::from_blob(
        first, shape, [owner = file.owner](void*) {}, at::TensorOptions(dtype));
  at::Tensor tensor = at::empty(shape, dtype);
  const auto bytes = static_cast<std::size_t>(tensor.numel()) * width;
  if (bytes == 0) return tensor;
  auto* const copy = static_cast<char*>(tensor.mutable_data_ptr());
  std::memcpy(copy, first, bytes);
  // A complex number is two numbers, each in the other byte order.
  const std::size_t part = c10::isComplexType(dtype) ? width / 2 : width;
  if (swapped) swap_bytes(copy, bytes / part, part);
  return tensor;
}

void swap_bytes(char* first, std::size_t count, std::size_t width) {
  for (std::size_t i = 0; i < count; ++i) std::reverse(first + i * width, first + (i + 1) * width);
}

bool bytes_of_shape(c10::IntArrayRef shape, std::size_t width, std::size_t& bytes) {
  constexpr std::size_t kMost = std::size_t{1} << 62U;
  bytes = width;
  bool hollow = false;
  // A size of zero counts as one at first: the steps of a tensor without values have to fit as well.
  for (const std::int64_t size : shape) {
    hollow = hollow || size == 0;
    if (size != 0 && bytes > kMost / static_cast<std::size_t>(size)) return false;
    if (size != 0) bytes *= static_cast<std::size_t>(size);
  }
  if (hollow) bytes = 0;
  return true;
}

std::string excerpt(std::string_view text) {
  std::string words(text.substr(0, kExcerpt));
  for (char& letter : words)
    if (static_cast<unsigned char>(letter) < ' ' || letter == '\x7f') letter = '.';
  return cat("'", words, text.size() > kExcerpt ? "..." : "", "'");
}

}  // namespace accel::detail
