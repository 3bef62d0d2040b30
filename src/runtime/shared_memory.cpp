#include "runtime/shared_memory.hpp"

#include "core/env.hpp"
#include "core/message.hpp"
#include "runtime/session.hpp"

#include <accel/error.hpp>

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

namespace accel::detail {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr const char* kFolder = "/dev/shm";
constexpr std::string_view kPrefix = "accel.";

std::atomic<std::size_t> bytes_alive{0};

[[noreturn]] void fail(const std::string& what) {
  const int code = errno;
  throw std::runtime_error(cat(what, ": ", std::generic_category().message(code)));
}

/// A descriptor that is closed unless it is kept.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return value_; }
  [[nodiscard]] int keep() { return std::exchange(value_, -1); }

 private:
  int value_;
};

// Numbers of processes mean the same only within one namespace of them, and containers may share a /dev/shm.
std::string file_prefix() {
  struct stat status {};
  const bool known = ::stat("/proc/self/ns/pid", &status) == 0;
  return cat(kPrefix, known ? status.st_ino : 0, '.');
}

// Files of processes that were killed between making one and closing its door. Only ours, and only of the dead.
void remove_left_behind() {
  std::error_code ignored;
  const std::string ours = file_prefix();
  for (const auto& entry : std::filesystem::directory_iterator(kFolder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(ours)) continue;
    struct stat status {};
    if (::stat(entry.path().c_str(), &status) != 0 || status.st_uid != ::geteuid()) continue;
    const long owner = std::strtol(name.c_str() + ours.size(), nullptr, 10);
    if (owner > 0 && ::kill(static_cast<pid_t>(owner), 0) != 0 && errno == ESRCH) ::unlink(entry.path().c_str());
  }
}

// Growing a file beyond it does not fail: it ends the process with SIGXFSZ.
void refuse_beyond_file_limit(std::size_t bytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && bytes > limit.rlim_cur)
    throw std::runtime_error(cat(grouped(static_cast<std::int64_t>(bytes)), " bytes are more than the limit of files, ",
                                 grouped(static_cast<std::int64_t>(limit.rlim_cur)), " (ulimit -f)"));
}

int make_file(std::string& path) {
  static std::atomic<int> made{0};
  // A dead process of the same number may have left some of these names.
  for (int tries = 0; tries < 1000; ++tries) {
    path = cat(kFolder, '/', file_prefix(), ::getpid(), '.', made.fetch_add(1));
    const int descriptor = ::open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    if (descriptor >= 0) return descriptor;
    if (errno != EEXIST) break;
  }
  fail(cat("cannot make ", path));
}

}  // namespace

SharedMemoryMode shared_memory_mode() {
  const auto text = env_text("ACCEL_SHARED_MEMORY");
  if (text == "memfd") return SharedMemoryMode::kAnonymous;
  if (text == "posix") return SharedMemoryMode::kPosix;
  try {
    return env_flag("ACCEL_SHARED_MEMORY").value_or(true) ? SharedMemoryMode::kAny : SharedMemoryMode::kOff;
  } catch (const UsageError&) {
    throw UsageError(message(job_site(), "ACCEL_SHARED_MEMORY",
                             cat("expected 1, 0, memfd or posix, found '", *text, "'; correct or unset it")));
  }
}

std::vector<SharedMemoryMode> kinds_to_try(SharedMemoryMode mode) {
  if (mode == SharedMemoryMode::kOff) return {};
  if (mode == SharedMemoryMode::kAny) return {SharedMemoryMode::kAnonymous, SharedMemoryMode::kPosix};
  return {mode};
}

std::size_t shared_memory_limit() {
  const auto mebibytes = env_integer("ACCEL_SHARED_MEMORY_LIMIT");
  if (!mebibytes) return std::numeric_limits<std::size_t>::max();
  if (*mebibytes < 0)
    throw UsageError(message(job_site(), "ACCEL_SHARED_MEMORY_LIMIT",
                             cat("expected a number of MiB >= 0, found ", *mebibytes, "; correct or unset it")));
  return static_cast<std::size_t>(*mebibytes) << 20;
}

SharedSegment SharedSegment::create(std::size_t bytes, SharedMemoryMode mode) {
  refuse_beyond_file_limit(bytes);
  SharedSegment segment;
  if (mode != SharedMemoryMode::kPosix) {
    Descriptor anonymous(::memfd_create("accel", MFD_CLOEXEC));
    if (anonymous.get() >= 0 && ::ftruncate(anonymous.get(), static_cast<off_t>(bytes)) == 0) {
      segment.map(anonymous.get(), bytes);
      segment.count();
      segment.path_ = cat("/proc/", ::getpid(), "/fd/", anonymous.get());
      segment.descriptor_ = anonymous.keep();
      return segment;
    }
    if (mode == SharedMemoryMode::kAnonymous) fail("memfd_create");
  }
  remove_left_behind();
  const Descriptor file(make_file(segment.path_));
  segment.unlink_ = segment.path_;
  // Reserved now: a full /dev/shm is an error here and a SIGBUS at the first touch later.
  errno = ::posix_fallocate(file.get(), 0, static_cast<off_t>(bytes));
  if (errno != 0) fail(cat("cannot reserve ", grouped(static_cast<std::int64_t>(bytes)), " bytes in ", kFolder));
  segment.map(file.get(), bytes);
  segment.count();
  return segment;
}

std::size_t SharedSegment::bytes_made() {
  return bytes_alive.load();
}

void SharedSegment::count() {
  counted_ = bytes_;
  bytes_alive += counted_;
}

SharedSegment SharedSegment::open(const std::string& path, std::size_t bytes) {
  const Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (file.get() < 0) fail(cat("cannot open ", path));
  // In another namespace the path may lead to anything; a shorter file would end the process at the first touch.
  struct stat status {};
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_size != static_cast<off_t>(bytes))
    throw std::runtime_error(cat(path, " is not what another process of this host made"));
  SharedSegment segment;
  segment.map(file.get(), bytes);
  return segment;
}

void SharedSegment::map(int descriptor, std::size_t bytes) {
  void* const address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (address == MAP_FAILED) fail(cat("cannot map ", grouped(static_cast<std::int64_t>(bytes)), " bytes"));
  data_ = static_cast<std::byte*>(address);
  bytes_ = bytes;
  if (bytes >= kHugePage) (void)::madvise(address, bytes, MADV_HUGEPAGE);  // a wish: refused, pages are small
}

void SharedSegment::close_door() noexcept {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  if (!unlink_.empty()) ::unlink(unlink_.c_str());
  unlink_.clear();
}

SharedSegment::~SharedSegment() {
  close_door();
  if (data_ != nullptr) ::munmap(data_, bytes_);
  bytes_alive -= counted_;
}

SharedSegment::SharedSegment(SharedSegment&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      counted_(std::exchange(other.counted_, 0)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      path_(std::move(other.path_)),
      unlink_(std::exchange(other.unlink_, {})) {}

SharedSegment& SharedSegment::operator=(SharedSegment&& other) noexcept {
  if (this != &other) {
    this->~SharedSegment();
    new (this) SharedSegment(std::move(other));
  }
  return *this;
}

std::string describe_shared_memory() {
  const SharedMemoryMode mode = shared_memory_mode();
  if (mode == SharedMemoryMode::kOff) return "none: ACCEL_SHARED_MEMORY=0, gradients go through MPI";
  try {
    const SharedSegment made = SharedSegment::create(4096, mode);
    (void)SharedSegment::open(made.path(), 4096);
    return made.path().starts_with("/proc") ? "anonymous memory (memfd), no use of /dev/shm; as tried in one process"
                                            : "files in /dev/shm; as tried in one process";
  } catch (const std::runtime_error& error) {
    return cat("none: ", error.what(), "; gradients go through MPI");
  }
}

}  // namespace accel::detail
