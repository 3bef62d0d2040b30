#pragma once

#include <accel/export.hpp>

#include <cstddef>
#include <functional>
#include <memory>

namespace accel::detail {

/// Something whose type only its maker knows.
using Parcel = std::shared_ptr<void>;

/// The work of a Prefetcher.
struct PrefetchStages {
  std::function<Parcel()> next;  ///< in order, one call at a time; null: nothing is left
  /// Several at once, one for each worker. The worker is one of 0 .. workers - 1.
  std::function<Parcel(std::size_t worker, const Parcel& claim)> make;
};

/// Threads that work ahead of one consumer and give it results in order. Knows nothing of what it carries.
class ACCEL_API Prefetcher {
 public:
  /// @param workers  threads, >= 1; with one, nothing runs at once, but all beside the consumer
  /// @param ahead    results made or under way that the consumer has not taken, >= workers
  Prefetcher(PrefetchStages stages, std::size_t workers, std::size_t ahead);
  /// Ends the threads: each finishes the stage it is in.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// The next result; waits for it. Null when nothing is left.
  /// Rethrows what a stage threw for this result; nothing is left then.
  [[nodiscard]] Parcel take();

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace accel::detail
