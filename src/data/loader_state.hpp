#pragma once

#include "data/loader_run.hpp"

#include <accel/loader_core.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace accel::detail {

/// How far a pass is; outlives it.
struct PassRecord {
  std::int64_t epoch = 0;
  std::int64_t batches = 0;  ///< handed out, those that a resumed pass left out included
  std::size_t position = 0;  ///< samples of all ranks together
  std::optional<std::size_t> size = std::nullopt;
  bool under_way = true;
  bool exhausted = false;
};

/// Where a loader stands. Shared by a loader and those that skip_first makes of it.
struct LoaderProgress {
  std::int64_t epoch = 0;
  std::int64_t next_epoch = 0;
  std::uint64_t seed = 0;
  std::size_t resume_at = 0;  ///< samples that the next pass leaves out
  std::int64_t resumed_batches = 0;
  std::shared_ptr<PassRecord> pass = nullptr;  ///< the one that was started last
};

/// What a LoaderCore refers to.
class LoaderState {
 public:
  LoaderState(std::shared_ptr<const DatasetOps> dataset, const DataLoaderOptions& loader_options, LoaderBinding to,
              std::shared_ptr<LoaderProgress> shared);

  [[nodiscard]] bool dispatch() const;
  /// The samples of this epoch; without their order, unless that is what says how many there are.
  [[nodiscard]] EpochPlan plan_of(std::int64_t epoch, bool ordered) const;
  /// Nothing where a stream does not know its size.
  [[nodiscard]] std::optional<std::size_t> samples_of(std::int64_t epoch) const;
  [[nodiscard]] Sharding sharding_of(const EpochPlan& plan, std::size_t first) const;
  /// The position at which the next pass of this handle begins. Takes the skip that was asked for.
  [[nodiscard]] std::size_t first_of(const EpochPlan& plan, std::int64_t skip) const;

  /// @throws UsageError  ranks would go without a batch of their own.
  void check_enough(const Sharding& sharding, const char* call) const;
  /// @throws UsageError  what only a rank that is bound can see.
  void check_binding() const;
  /// @return what to say if a pass of it trains outside a join guard; empty if ranks have equally many batches.
  [[nodiscard]] std::string uneven_text(const Sharding& sharding) const;

  [[noreturn]] void usage_error(const char* call, const std::string& text) const;

  const std::shared_ptr<const DatasetOps> ops;
  const DataLoaderOptions options;
  const LoaderBinding binding;
  const std::shared_ptr<LoaderProgress> progress;
  std::int64_t skip_once = 0;

 private:
  void check_indices(const std::vector<std::size_t>& indices, const char* option) const;
};

/// @throws UsageError  an option is out of range, contradicts another one, or does not fit the data set.
void check_loader_options(const DataLoaderOptions& options, const DatasetOps& ops);

}  // namespace accel::detail
