#pragma once

#include <accel/collectives.hpp>
#include <accel/export.hpp>

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace accel::detail {

/// How many rows this rank's batch has, and how many of them belong to it: the first ones; the others repeat samples
/// so that all ranks have equally many.
struct BatchRows {
  std::int64_t given = 0;
  std::int64_t own = 0;
};

/// What a join_uneven_inputs guard wants of the loaders that are iterated while it lives.
struct JoinHooks {
  std::function<void()> exhausted;   ///< a loader that trained has run out on this rank; may communicate and throw
  std::optional<bool> even_batches;  ///< in place of the loaders' own option
};

/// The loaders of one accelerator that are being iterated now, innermost last. `accumulate` asks the innermost whether
/// the batch it handed out is its last. Used from the thread that trains.
class ActiveLoaders {
 public:
  using Id = std::uint64_t;

  /// @param uneven  what to say if this pass trains outside a join guard, or gathers; empty if nothing
  Id enter(std::string uneven = {}) {
    entries_.push_back({.id = ++last_id_, .uneven = std::move(uneven)});
    return last_id_;
  }
  void set_batch(Id id, bool at_end, std::optional<BatchRows> rows) {
    for (auto& entry : entries_) {
      if (entry.id != id) continue;
      entry.at_end = at_end;
      entry.rows = rows;
    }
  }
  /// Leaving twice, or in another order than entering (iterators on the heap), is harmless.
  void leave(Id id) noexcept {
    std::erase_if(entries_, [id](const Entry& entry) { return entry.id == id; });
  }
  [[nodiscard]] bool empty() const { return entries_.empty(); }
  [[nodiscard]] bool at_end() const { return !entries_.empty() && entries_.back().at_end; }

  /// Of the batch at hand of the innermost loader; nothing where there is none, or it does not know.
  [[nodiscard]] std::optional<BatchRows> rows() const { return entries_.empty() ? std::nullopt : entries_.back().rows; }

  /// A micro-batch is trained with the batch at hand. @return what to say about it, once; empty if nothing
  std::string note_training() {
    if (entries_.empty()) return {};
    entries_.back().trains = true;
    return join_ ? std::string() : std::exchange(entries_.back().uneven, {});
  }

  /// The results of the batch at hand are gathered. @return as note_training
  std::string note_gathering() { return entries_.empty() ? std::string() : std::exchange(entries_.back().uneven, {}); }

  void set_join(std::optional<JoinHooks> join) { join_ = std::move(join); }
  [[nodiscard]] const std::optional<JoinHooks>& join() const { return join_; }

  /// Numbers passes that send batches from rank to rank: the same on all ranks.
  std::uint64_t next_dispatch() { return ++dispatches_; }

  /// The pass ran out: it is left, and a join guard is told if it was the outermost and trained. May throw.
  void exhausted(Id id) {
    const bool trained = entries_.size() == 1 && entries_.front().id == id && entries_.front().trains;
    leave(id);
    if (trained && join_ && join_->exhausted) join_->exhausted();
  }
  /// A pass had nothing at all for this rank. May throw.
  void empty_pass() const {
    if (entries_.empty() && join_ && join_->exhausted) join_->exhausted();
  }

 private:
  struct Entry {
    Id id = 0;
    bool at_end = false;
    bool trains = false;
    std::optional<BatchRows> rows = std::nullopt;
    std::string uneven = {};
  };
  std::vector<Entry> entries_;
  std::optional<JoinHooks> join_;
  Id last_id_ = 0;
  std::uint64_t dispatches_ = 0;
};

/// One pass of a loader as an entry in ActiveLoaders: entered when made, left when destroyed or at `leave`, whichever
/// way the loop ends. Of an unprepared loader it does nothing.
class ActiveScope {
 public:
  ActiveScope(std::shared_ptr<ActiveLoaders> active, std::string uneven) : active_(std::move(active)) {
    if (active_) id_ = active_->enter(std::move(uneven));
  }
  ActiveScope(ActiveScope&& other) noexcept : active_(std::exchange(other.active_, nullptr)), id_(other.id_) {}
  ActiveScope& operator=(ActiveScope&&) = delete;
  ~ActiveScope() { leave(); }

  void set_batch(bool at_end, std::optional<BatchRows> rows) {
    if (active_) active_->set_batch(id_, at_end, rows);
  }
  /// The pass ran out. @throws what a join guard's rounds throw.
  void exhausted() {
    if (const auto active = std::exchange(active_, nullptr)) active->exhausted(id_);
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
  Group group = {};  ///< what dispatched batches travel in; a group of one where nothing was said
  c10::Device device = c10::DeviceType::CPU;
  bool device_placement = true;
  std::shared_ptr<ActiveLoaders> active;  ///< null: an unprepared loader
};

}  // namespace accel::detail
