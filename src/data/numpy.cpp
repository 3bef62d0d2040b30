#include <accel/numpy.hpp>

#include "core/message.hpp"
#include "data/npy_format.hpp"

#include <unistd.h>
#include <zip.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace accel {
namespace {

using detail::cat;
using detail::FilePlace;

constexpr std::size_t kMapped = std::size_t{1} << 20U;  // below it a mapping costs more than it saves
constexpr std::string_view kSuffix = ".npy";
constexpr const char* kSaveAgain = "save it again with numpy.savez";
constexpr const char* kCheckDisk = "check the folder, its permissions and the free space";

using Archive = std::unique_ptr<zip_t, decltype(&zip_discard)>;
using Member = std::unique_ptr<zip_file_t, decltype(&zip_fclose)>;

std::string words(int code) {
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  std::string text = zip_error_strerror(&error);
  zip_error_fini(&error);
  return text;
}

Archive open_archive(const FilePlace& place, int flags) {
  int error = 0;
  Archive archive(zip_open(place.file.c_str(), flags, &error), &zip_discard);
  if (!archive) place.fail("a .npz file, which is a zip file", cat("that: ", words(error)), kSaveAgain);
  return archive;
}

// To the end, behind which libzip compares the checksum.
std::string read_member(const FilePlace& place, zip_t* archive, std::uint64_t index) {
  const Member member(zip_fopen_index(archive, index, 0), &zip_fclose);
  if (!member) place.fail("a member that can be read", zip_strerror(archive), kSaveAgain);
  std::string bytes;
  std::vector<char> buffer(kMapped);
  for (;;) {
    const zip_int64_t count = zip_fread(member.get(), buffer.data(), buffer.size());
    if (count < 0) place.fail("a whole member", zip_file_strerror(member.get()), kSaveAgain);
    if (count == 0) return bytes;
    bytes.append(buffer.data(), static_cast<std::size_t>(count));
  }
}

// A file that is written under another name first, and gets its own when it is whole.
class NewFile {
 public:
  explicit NewFile(FilePlace place)
      : place_(std::move(place)), partial_{place_.call, cat(place_.file, ".", ::getpid(), ".partial")} {}
  ~NewFile() {
    if (!done_) std::remove(partial_.file.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  [[nodiscard]] const FilePlace& partial() const { return partial_; }
  void finish() {
    if (std::rename(partial_.file.c_str(), place_.file.c_str()) != 0) refuse(std::strerror(errno));
    done_ = true;
  }
  [[noreturn]] void refuse(std::string_view found) const {
    place_.fail("to write a file", cat("that it cannot be written: ", found), kCheckDisk);
  }

 private:
  FilePlace place_;
  FilePlace partial_;
  bool done_ = false;
};

// The archive refers to the texts until it is closed.
void add_member(const NewFile& file, zip_t* archive, const std::string& name, const std::string& bytes,
                const NpzOptions& options) {
  zip_source_t* const source = zip_source_buffer(archive, bytes.data(), bytes.size(), 0);
  if (source == nullptr) file.refuse(zip_strerror(archive));
  const zip_int64_t index =
      zip_file_add(archive, cat(name, kSuffix).c_str(), source, ZIP_FL_OVERWRITE | ZIP_FL_ENC_UTF_8);
  if (index < 0) {
    zip_source_free(source);
    file.refuse(zip_strerror(archive));
  }
  const zip_int32_t method = options.compressed ? ZIP_CM_DEFLATE : ZIP_CM_STORE;
  if (zip_set_file_compression(archive, static_cast<zip_uint64_t>(index), method, 0) != 0)
    file.refuse(zip_strerror(archive));
}

}  // namespace

at::Tensor load_npy(const std::string& file) {
  const FilePlace place{"load_npy", file};
  const detail::FileBytes bytes = detail::map_file(place);
  at::Tensor tensor = detail::read_npy(place, bytes);
  return bytes.bytes.size() < kMapped ? tensor.clone() : tensor;
}

std::map<std::string, at::Tensor> load_npz(const std::string& file) {
  const FilePlace place{"load_npz", file};
  (void)detail::map_file(place);  // libzip would take an empty file or a pipe for something else
  const Archive archive = open_archive(place, ZIP_RDONLY);
  std::map<std::string, at::Tensor> tensors;
  const zip_int64_t count = zip_get_num_entries(archive.get(), 0);
  for (std::uint64_t index = 0; index < static_cast<std::uint64_t>(count); ++index) {
    const char* const known = zip_get_name(archive.get(), index, 0);
    std::string name = known == nullptr ? "" : known;
    const FilePlace member{place.call, cat(file, " (", name, ")")};
    if (!name.ends_with(kSuffix))
      member.fail("members whose names end with .npy", "another one",
                  "take it out of the archive, or save it as an array");
    name.resize(name.size() - kSuffix.size());
    tensors[name] = detail::read_npy(member, detail::in_memory(read_member(member, archive.get(), index)));
  }
  if (tensors.empty()) place.fail("arrays", "an archive of nothing", kSaveAgain);
  return tensors;
}

void save_npy(const std::string& file, const at::Tensor& tensor) {
  constexpr const char* kCall = "save_npy";
  const at::Tensor ready = detail::npy_ready(kCall, tensor);
  const std::string header = detail::npy_header(kCall, ready);
  NewFile target({kCall, file});
  errno = 0;
  std::ofstream out(target.partial().file, std::ios::binary);
  const std::string_view bytes = detail::bytes_of(ready);
  out.write(header.data(), static_cast<std::streamsize>(header.size()));
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out) target.refuse(std::strerror(errno));
  target.finish();
}

void save_npz(const std::string& file, const std::map<std::string, at::Tensor>& tensors, const NpzOptions& options) {
  constexpr const char* kCall = "save_npz";
  std::vector<std::string> members;
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor ready = detail::npy_ready(kCall, tensor);
    members.push_back(detail::npy_header(kCall, ready).append(detail::bytes_of(ready)));
  }
  NewFile target({kCall, file});
  int error = 0;
  Archive archive(zip_open(target.partial().file.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &error), &zip_discard);
  if (!archive) target.refuse(words(error));
  std::size_t at = 0;
  for (const auto& [name, tensor] : tensors) add_member(target, archive.get(), name, members[at++], options);
  if (zip_close(archive.get()) != 0) target.refuse(zip_strerror(archive.get()));
  (void)archive.release();  // closed is freed
  target.finish();
}

}  // namespace accel
