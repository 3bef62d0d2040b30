#include "data/stream_rows.hpp"

#include <algorithm>
#include <utility>

namespace accel::detail {

Rows StreamRows::take(std::size_t count) {
  if (limit_) count = std::min(count, *limit_ - std::min(*limit_, taken_));
  Rows rows;
  while (rows.count < count) {
    const std::size_t wanted = count - rows.count;
    if (!rest_) {
      if (ended_) break;
      rest_ = ops_.read(wanted);
      ended_ = rest_ == nullptr;
      rest_rows_ = ended_ ? 0 : ops_.rows(rest_);
      if (rest_rows_ == 0) rest_ = nullptr;
      continue;
    }
    const std::size_t taken = std::min(wanted, rest_rows_);
    if (taken == rest_rows_) {
      rows.parcels.push_back(std::exchange(rest_, nullptr));
    } else {
      rows.parcels.push_back(ops_.slice(rest_, 0, taken));
      rest_ = ops_.slice(rest_, taken, rest_rows_);
    }
    rest_rows_ -= taken;
    rows.count += taken;
  }
  taken_ += rows.count;
  return rows;
}

Parcel StreamRows::part(const Rows& rows, std::size_t begin, std::size_t end) const {
  std::vector<Parcel> pieces;
  std::size_t at = 0;
  for (const Parcel& parcel : rows.parcels) {
    const std::size_t count = ops_.rows(parcel);
    const std::size_t from = std::clamp(begin, at, at + count) - at;
    const std::size_t to = std::clamp(end, at, at + count) - at;
    if (from < to) pieces.push_back(from == 0 && to == count ? parcel : ops_.slice(parcel, from, to));
    at += count;
  }
  return pieces.size() == 1 ? pieces.front() : ops_.concatenate(pieces);
}

}  // namespace accel::detail
