#pragma once

#include <cstddef>
#include <cstdint>

namespace accel::detail {

/// While alive, this thread reads one batch: data_generator() gives that batch's random numbers, and a worker's tensor
/// operations use this thread alone (each would start a team of its own otherwise).
class DataScope {
 public:
  /// @param begin  the position of the batch in the epoch's order
  DataScope(std::uint64_t seed, std::int64_t epoch, std::size_t begin, bool worker);
  ~DataScope();
  DataScope(const DataScope&) = delete;
  DataScope& operator=(const DataScope&) = delete;

  struct Stream {
    std::uint64_t key = 0;
    bool inside = false;
    bool seeded = false;
  };

 private:
  Stream before_;
};

}  // namespace accel::detail
