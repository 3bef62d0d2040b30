#pragma once

#include "core/message.hpp"
#include "data/sharded_sampler.hpp"

#include <accel/collectives.hpp>
#include <accel/loader_core.hpp>
#include <accel/prefetcher.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace accel::detail {

/// The order of one epoch. Equal on all ranks.
struct EpochPlan {
  std::int64_t epoch = 0;
  std::size_t samples = 0;
  std::shared_ptr<const std::vector<std::size_t>> order = nullptr;  ///< null: as the data is
  std::shared_ptr<const std::vector<std::size_t>> cuts = nullptr;   ///< of a batch sampler
};

/// What one step gives one rank; while it is read, a claim on it.
struct RankBatch {
  std::size_t begin = 0;             ///< position in the order of its first row: what its random numbers depend on
  Parcel parcel;                     ///< of a map-style claim null, of a stream's its rows, then the batch
  std::vector<std::size_t> indices;  ///< of a map-style claim
  std::string packed;                ///< what goes to another rank
  BatchRows rows;
  bool present = false;  ///< the rank has a batch in this step
  bool last = false;     ///< and none after it
};

/// One step of this rank (one part), or of all ranks (dispatched: a part each).
struct Step {
  std::vector<RankBatch> parts;
  std::size_t position_after = 0;  ///< samples of all ranks together up to and with this step
};

/// Gives out the steps of a pass: `next` in order, one call at a time; `make` several at once.
class StepSource {
 public:
  virtual ~StepSource() = default;
  /// Whether there is a first step. Called once, before the others.
  virtual bool empty() = 0;
  virtual std::shared_ptr<Step> next() = 0;
  virtual void make(std::size_t worker, Step& step) = 0;
};

/// Who reads which part of what, in one pass.
struct PassFacts {
  EpochPlan plan;
  Sharding sharding;      ///< of this rank; `samples` is meaningless for a stream that does not know its size
  bool dispatch = false;  ///< steps have a part for every rank
  std::uint64_t seed = 0;
  std::size_t num_workers = 0;
  bool pin = false;
  Site site;
};

std::unique_ptr<StepSource> make_index_steps(const PassFacts& facts, const DatasetOps& ops);
/// @param limit  rows of the whole stream, if they are limited
std::unique_ptr<StepSource> make_stream_steps(const PassFacts& facts, const DatasetOps& ops,
                                              std::optional<std::size_t> limit);

/// Steps in order, with or without workers. @throws what the stages throw.
class StepQueue {
 public:
  StepQueue(std::unique_ptr<StepSource> source, std::size_t workers, std::size_t prefetch_factor);
  ~StepQueue();
  StepQueue(const StepQueue&) = delete;
  StepQueue& operator=(const StepQueue&) = delete;

  [[nodiscard]] bool done() const { return done_; }
  [[nodiscard]] std::shared_ptr<Step> take();

 private:
  std::unique_ptr<StepSource> source_;
  std::unique_ptr<Prefetcher> prefetcher_;  // null: no workers
  bool done_ = false;
};

/// Batches of this rank as they go to the program.
class LoaderRun {
 public:
  virtual ~LoaderRun() = default;
  [[nodiscard]] virtual bool done() const = 0;
  /// @throws DataError, and what communication throws
  [[nodiscard]] virtual RankBatch read() = 0;
  /// After read: samples of all ranks together up to and with that batch.
  [[nodiscard]] virtual std::size_t position() const = 0;
  /// Every batch was handed out.
  virtual void finish() {}
};

std::unique_ptr<LoaderRun> make_local_run(std::unique_ptr<StepQueue> steps);

/// Rank 0 reads `steps`, which have a part for every rank, and sends them; the others (`steps` null) receive. One
/// message a step and rank, no collective: a rank waits for its own batches only.
std::unique_ptr<LoaderRun> make_dispatched_run(std::unique_ptr<StepQueue> steps, const Group& group,
                                               const DatasetOps& ops, std::uint64_t pass);

/// Throws a DataError about a batch whose samples could not be read, with the exception under way nested in it.
[[noreturn]] void throw_data_error(const Site& site, const EpochPlan& plan, const std::string& what_samples);

}  // namespace accel::detail
