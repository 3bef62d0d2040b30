#pragma once

#include <cstdint>

namespace accel::detail {

/// Counts the micro-batches of one model's window. Pure: knows nothing of tensors, ranks or loaders.
///
/// `position` counts micro-batches that took part, also with nothing (skip), so that ranks stay in step; `held` counts
/// those that brought a gradient: what the window is divided by.
class AccumulationWindow {
 public:
  /// Whether the micro-batch that begins now closes the window.
  [[nodiscard]] bool closes_next(std::int64_t steps, bool last) const { return last || position_ + 1 >= steps; }

  void hold() { ++held_; }
  void add_items(std::int64_t items) {
    items_ += items;
    by_items_ = true;
  }

  /// A micro-batch that did not close the window has ended.
  void advance() { ++position_; }

  /// The window ends, with an update or without; the next micro-batch is the first of a new one.
  void reset() { *this = AccumulationWindow(); }

  [[nodiscard]] bool open() const { return position_ > 0 || held_ > 0; }
  [[nodiscard]] std::int64_t position() const { return position_; }
  [[nodiscard]] std::int64_t held() const { return held_; }
  [[nodiscard]] std::int64_t items() const { return items_; }
  /// Losses of this window are sums over items.
  [[nodiscard]] bool by_items() const { return by_items_; }

 private:
  std::int64_t position_ = 0;
  std::int64_t held_ = 0;
  std::int64_t items_ = 0;
  bool by_items_ = false;
};

}  // namespace accel::detail
