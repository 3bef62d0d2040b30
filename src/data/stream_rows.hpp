#pragma once

#include <accel/loader_core.hpp>

#include <cstddef>
#include <optional>
#include <vector>

namespace accel::detail {

/// Rows of a stream, as parcels, and how many there are in each.
struct Rows {
  std::vector<Parcel> parcels = {};
  std::size_t count = 0;
};

/// A stream as rows in any portions, whatever portions it is read in. Used by one thread at a time.
class StreamRows {
 public:
  /// @param limit  the stream ends here at the latest
  StreamRows(const DatasetOps& ops, std::optional<std::size_t> limit) : ops_(ops), limit_(limit) {}

  /// The next `count` rows, fewer at the end.
  Rows take(std::size_t count);

  /// Rows [begin, end) of `rows` as one parcel; end > begin.
  [[nodiscard]] Parcel part(const Rows& rows, std::size_t begin, std::size_t end) const;

  /// Rows taken so far.
  [[nodiscard]] std::size_t taken() const { return taken_; }

 private:
  const DatasetOps& ops_;
  const std::optional<std::size_t> limit_;
  Parcel rest_;  // read, and not taken whole
  std::size_t rest_rows_ = 0;
  std::size_t taken_ = 0;
  bool ended_ = false;
};

}  // namespace accel::detail
