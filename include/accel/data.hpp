#pragma once

#include <accel/export.hpp>
#include <accel/foreign_loader.hpp>
#include <accel/loader_binding.hpp>
#include <accel/loader_pass.hpp>
#include <accel/to_device.hpp>

#include <c10/util/ArrayRef.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace accel {

/// How make_data_loader forms batches.
struct DataLoaderOptions {
  std::int64_t batch_size = 1;  ///< samples of a batch on one rank; >= 1
  bool shuffle = false;         ///< another order each epoch, the same for any number of ranks
  std::uint64_t seed = 0;       ///< of the shuffle; the order is a function of seed and epoch alone
  bool drop_last = false;       ///< leave out a short last batch, and a last step that not all ranks have a batch for
  /// All ranks get equally many batches, all full: the last step is completed with samples from the beginning. Turn it
  /// off to see each sample exactly once (evaluation); then ranks may differ in their number of batches, and a loop
  /// that trains would leave the longer ones waiting. At one rank there is nothing to even out.
  bool even_batches = true;
};

namespace detail {

class LoaderState;

/// The samples of this rank's batches in one epoch, batch by batch.
class ACCEL_API IndexStream {
 public:
  [[nodiscard]] bool done() const { return step_ == steps_; }
  std::vector<std::size_t> read();

 private:
  friend class LoaderCore;
  std::shared_ptr<const LoaderState> state_;
  std::shared_ptr<const std::vector<std::size_t>> order_;  // null: as the data is
  std::size_t step_ = 0;
  std::size_t steps_ = 0;
};

/// All of a DataLoader that does not depend on the type of its batches. A handle.
class ACCEL_API LoaderCore {
 public:
  /// @throws UsageError  batch_size < 1, or the number of samples is not known.
  LoaderCore(std::optional<std::size_t> samples, const DataLoaderOptions& options);

  /// @throws UsageError  fewer batches than ranks.
  [[nodiscard]] LoaderCore bind(const LoaderBinding& binding) const;

  [[nodiscard]] const LoaderBinding& binding() const;
  [[nodiscard]] const DataLoaderOptions& options() const;
  [[nodiscard]] std::size_t samples() const;
  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] std::size_t remainder() const;
  [[nodiscard]] std::int64_t epoch() const;
  void set_epoch(std::int64_t epoch) const;
  [[nodiscard]] IndexStream start_pass() const;

 private:
  explicit LoaderCore(std::shared_ptr<LoaderState> state);
  std::shared_ptr<LoaderState> state_;
};

template <class D>
concept MapStyleDataset = requires(D& dataset, c10::ArrayRef<std::size_t> indices) {
  dataset.get_batch(indices);
  { dataset.size() } -> std::convertible_to<std::optional<std::size_t>>;
};

template <class D>
using BatchOf = std::remove_cvref_t<decltype(std::declval<D&>().get_batch(c10::ArrayRef<std::size_t>()))>;

template <class B>
using FetchBatch = std::function<B(c10::ArrayRef<std::size_t>)>;

template <class B>
class DatasetSource {
 public:
  using Batch = B;
  DatasetSource(IndexStream indices, std::shared_ptr<const FetchBatch<B>> fetch)
      : indices_(std::move(indices)), fetch_(std::move(fetch)) {}

  [[nodiscard]] bool done() const { return indices_.done(); }
  Batch read() { return (*fetch_)(indices_.read()); }

 private:
  IndexStream indices_;
  std::shared_ptr<const FetchBatch<B>> fetch_;
};

}  // namespace detail

/// Batches of a data set: all of them, or after `Accelerator::prepare` the part of this rank, on its device.
///
/// Each `begin()` is one pass, and the next pass is the next epoch by itself, also after a loop that was left early.
/// Copies refer to the same loader. Local: no pass communicates.
template <class Batch>
class DataLoader {
 public:
  using Iterator = LoaderPass<detail::DatasetSource<Batch>>;

  DataLoader(detail::LoaderCore core, std::shared_ptr<const detail::FetchBatch<Batch>> fetch)
      : core_(std::move(core)), fetch_(std::move(fetch)) {}

  [[nodiscard]] Iterator begin() const {
    return Iterator(detail::DatasetSource<Batch>(core_.start_pass(), fetch_), core_.binding());
  }
  [[nodiscard]] std::default_sentinel_t end() const { return {}; }

  /// The batches that this rank gets in an epoch.
  [[nodiscard]] std::size_t size() const { return core_.size(); }

  /// The samples of the whole data set, on all ranks together.
  [[nodiscard]] std::size_t samples() const { return core_.samples(); }

  /// How many rows of the last step, taken over all ranks in order, are not repeated ones; 0: all of them.
  [[nodiscard]] std::size_t remainder() const { return core_.remainder(); }

  /// The epoch of the pass that was started last; before the first, of the one to come. Counts from 0.
  [[nodiscard]] std::int64_t epoch() const { return core_.epoch(); }

  /// The next pass is this epoch; the ones after it count on from there.
  void set_epoch(std::int64_t epoch) const { core_.set_epoch(epoch); }

  [[nodiscard]] const DataLoaderOptions& options() const { return core_.options(); }

  /// The part of one rank as a loader of its own, over the same data set. What `Accelerator::prepare` calls.
  /// @throws UsageError  `even_batches`, and the data has fewer batches than there are ranks (on all of them).
  [[nodiscard]] DataLoader bind(const detail::LoaderBinding& binding) const {
    return DataLoader(core_.bind(binding), fetch_);
  }

 private:
  detail::LoaderCore core_;
  std::shared_ptr<const detail::FetchBatch<Batch>> fetch_;
};

/// A loader over a map-style data set: anything with `get_batch(c10::ArrayRef<size_t>)` and `size()`, as all of
/// `torch::data` that can be indexed, with its chains of `.map(...)`. The data set is moved or copied in.
/// @throws UsageError  `batch_size` < 1, or the data set does not know its size.
template <class Dataset>
requires detail::MapStyleDataset<std::remove_cvref_t<Dataset>>
[[nodiscard]] DataLoader<detail::BatchOf<std::remove_cvref_t<Dataset>>> make_data_loader(
    Dataset&& dataset, const DataLoaderOptions& options = {}) {
  using Batch = detail::BatchOf<std::remove_cvref_t<Dataset>>;
  auto held = std::make_shared<std::remove_cvref_t<Dataset>>(std::forward<Dataset>(dataset));
  detail::LoaderCore core(held->size(), options);
  return DataLoader<Batch>(std::move(core),
                           std::make_shared<const detail::FetchBatch<Batch>>(
                               [held](c10::ArrayRef<std::size_t> indices) { return held->get_batch(indices); }));
}

}  // namespace accel
