#pragma once

#include <accel/export.hpp>

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace accel::detail {

/// The loaders of one accelerator that are being iterated now, innermost last. `accumulate` asks the innermost whether
/// the batch it handed out is its last. Used from the thread that trains.
class ActiveLoaders {
 public:
  using Id = std::uint64_t;

  Id enter() {
    entries_.push_back({++last_id_, false});
    return last_id_;
  }
  void set_at_end(Id id, bool at_end) {
    for (auto& entry : entries_)
      if (entry.id == id) entry.at_end = at_end;
  }
  /// Leaving twice, or in another order than entering (iterators on the heap), is harmless.
  void leave(Id id) noexcept {
    std::erase_if(entries_, [id](const Entry& entry) { return entry.id == id; });
  }
  [[nodiscard]] bool empty() const { return entries_.empty(); }
  [[nodiscard]] bool at_end() const { return !entries_.empty() && entries_.back().at_end; }

 private:
  struct Entry {
    Id id = 0;
    bool at_end = false;
  };
  std::vector<Entry> entries_;
  Id last_id_ = 0;
};

/// One pass of a loader as an entry in ActiveLoaders: entered when made, left when destroyed or at `leave`, whichever
/// way the loop ends. Of an unprepared loader it does nothing.
class ActiveScope {
 public:
  explicit ActiveScope(std::shared_ptr<ActiveLoaders> active) : active_(std::move(active)) {
    if (active_) id_ = active_->enter();
  }
  ActiveScope(ActiveScope&& other) noexcept : active_(std::exchange(other.active_, nullptr)), id_(other.id_) {}
  ActiveScope& operator=(ActiveScope&&) = delete;
  ~ActiveScope() { leave(); }

  void set_at_end(bool at_end) {
    if (active_) active_->set_at_end(id_, at_end);
  }
  void leave() noexcept {
    if (active_) active_->leave(id_);
    active_ = nullptr;
  }

 private:
  std::shared_ptr<ActiveLoaders> active_;
  ActiveLoaders::Id id_ = 0;
};

/// What `prepare` tells a loader: which shard it reads, where batches go, and who asks about its end.
struct LoaderBinding {
  int rank = 0;
  int size = 1;
  c10::Device device = c10::DeviceType::CPU;
  bool device_placement = true;
  std::shared_ptr<ActiveLoaders> active;  ///< null: an unprepared loader
};

}  // namespace accel::detail
