#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace accel::detail {

/// Which kind of memory the processes of one host may share; ACCEL_SHARED_MEMORY, for people:
///   1 (default)  anonymous memory, or else a file in /dev/shm
///   memfd        anonymous memory only
///   posix        a file in /dev/shm only
///   0            none: everything goes through MPI
enum class SharedMemoryMode { kOff, kAny, kAnonymous, kPosix };

/// @throws UsageError  ACCEL_SHARED_MEMORY is set to something else.
[[nodiscard]] SharedMemoryMode shared_memory_mode();

/// The kinds of memory that this mode allows, in order: the next is tried where some rank cannot have the last.
[[nodiscard]] std::vector<SharedMemoryMode> kinds_to_try(SharedMemoryMode mode);

/// The most bytes that one process puts into shared memory: ACCEL_SHARED_MEMORY_LIMIT (MiB), else no limit but the
/// machine's. What is beyond goes through MPI. @throws UsageError  it is no number, or negative.
[[nodiscard]] std::size_t shared_memory_limit();

/// Memory of one process that other processes of the host can map. Filled with zeros; not touched by making it, so that
/// a page lies near the processor that uses it first.
///
/// Anonymous memory (memfd), which others open by way of /proc: it takes no room in /dev/shm, has no name, and goes
/// with the last process that maps it, however that ends. Where it is refused (an old kernel; to others, in another
/// process namespace, then their call asks for the second kind): a file in /dev/shm, whose room is reserved at once and
/// whose name is gone as soon as `close_door` was called; names that killed processes left are removed when the next
/// file is made.
///
/// Local: nothing here communicates. Not copyable; the mapping goes with the object.
class SharedSegment {
 public:
  SharedSegment() = default;
  /// @throws std::runtime_error  with the reason, in words.
  static SharedSegment create(std::size_t bytes, SharedMemoryMode mode);
  /// Maps what another process made. @throws std::runtime_error  with the reason.
  static SharedSegment open(const std::string& path, std::size_t bytes);

  ~SharedSegment();
  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&& other) noexcept;

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  /// What others open, until close_door.
  [[nodiscard]] const std::string& path() const { return path_; }

  /// Of all segments that this process made and still holds.
  [[nodiscard]] static std::size_t bytes_made();

  /// All who want it have opened it.
  void close_door() noexcept;

 private:
  void map(int descriptor, std::size_t bytes);
  void count();

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t counted_ = 0;  ///< in bytes_made
  int descriptor_ = -1;
  std::string path_;
  std::string unlink_;  ///< the name in /dev/shm, while it has one
};

/// Tries the memory that `create` would give, in this process alone.
/// @return  what it is, in words ("anonymous memory"), or why there is none.
[[nodiscard]] std::string describe_shared_memory();

}  // namespace accel::detail
