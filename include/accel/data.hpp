#pragma once

#include <accel/data_generator.hpp>
#include <accel/data_options.hpp>
#include <accel/dataset_ops.hpp>
#include <accel/export.hpp>
#include <accel/foreign_loader.hpp>
#include <accel/loader_binding.hpp>
#include <accel/loader_core.hpp>
#include <accel/loader_pass.hpp>
#include <accel/to_device.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace accel {

namespace detail {

/// The batches of one pass, by their type.
template <class B>
class DatasetSource {
 public:
  using Batch = B;
  DatasetSource(LoaderPassCore pass, bool non_blocking) : pass_(std::move(pass)), non_blocking_(non_blocking) {}

  [[nodiscard]] bool done() const { return pass_.done(); }
  Batch read() { return std::move(*std::static_pointer_cast<Batch>(pass_.read())); }
  [[nodiscard]] std::optional<BatchRows> rows() const { return pass_.rows(); }
  [[nodiscard]] std::string uneven() const { return pass_.uneven(); }
  [[nodiscard]] bool non_blocking() const { return non_blocking_; }
  void exhausted() { pass_.exhausted(); }

 private:
  LoaderPassCore pass_;
  bool non_blocking_ = false;
};

}  // namespace detail

/// Batches of a data set: all of them, or after `Accelerator::prepare` the part of this rank, on its device.
///
/// Each `begin()` is one pass, and the next pass is the next epoch by itself, also after a loop that was left early.
/// Copies refer to the same loader. No pass communicates, unless rank 0 reads for all (`dispatch_batches`): then all
/// ranks begin and leave their loops together.
/// An iterator throws DataError where the data set threw (names the sample, nests what was thrown); then the pass is
/// over.
template <class Batch>
class DataLoader {
 public:
  using Iterator = LoaderPass<detail::DatasetSource<Batch>>;

  explicit DataLoader(detail::LoaderCore core) : core_(std::move(core)) {}

  [[nodiscard]] Iterator begin() const {
    return Iterator({core_.start_pass(), core_.options().non_blocking}, core_.binding());
  }
  [[nodiscard]] std::default_sentinel_t end() const { return {}; }

  /// The batches that this rank gets in the pass that is under way; if none is, in the one to come. What a resumed or
  /// skipping pass leaves out is not counted.
  /// @throws UsageError  a stream whose length is not known.
  [[nodiscard]] std::size_t size() const { return core_.size(); }

  /// Whether `size()` and `samples()` are known: not of streams that just end some day.
  [[nodiscard]] bool has_size() const { return core_.has_size(); }

  /// The samples of an epoch, on all ranks together. @throws UsageError  as `size`.
  [[nodiscard]] std::size_t samples() const { return core_.samples(); }

  /// How many rows of the last step, taken over all ranks in order, are not repeated ones; 0: all of them.
  [[nodiscard]] std::size_t remainder() const { return core_.remainder(); }

  /// The epoch of the pass that was started last; before the first, of the one to come. Counts from 0.
  [[nodiscard]] std::int64_t epoch() const { return core_.epoch(); }

  /// The next pass is this epoch; the ones after it count on from there.
  void set_epoch(std::int64_t epoch) const { core_.set_epoch(epoch); }

  /// Where the program stands in the data: inside a loop, after the batch at hand; after a loop that was left early,
  /// where it was left; after one that ran out, at the beginning of the next epoch. Local: equal on all ranks but for
  /// `batches` of uneven ones.
  [[nodiscard]] DataLoaderState state_dict() const { return core_.state_dict(); }

  /// The next pass goes on from there, with the seed of the state: the batches that the uninterrupted pass would have
  /// given. With another number of ranks or another batch_size too: no sample comes twice or is left out, and the
  /// batches are dealt anew from the state's position. Passes under way are not touched.
  /// @throws UsageError  negative numbers; more samples than an epoch of this data has.
  void load_state_dict(const DataLoaderState& state) const { core_.load_state_dict(state); }

  [[nodiscard]] const DataLoaderOptions& options() const { return core_.options(); }

  /// The part of one rank as a loader of its own, over the same data set. What `Accelerator::prepare` calls.
  /// @throws UsageError  `even_batches`, and the data has fewer batches than there are ranks (on all of them);
  ///                     `split_batches` and ranks that cannot split batch_size; batches that rank 0 cannot send.
  [[nodiscard]] DataLoader bind(const detail::LoaderBinding& binding) const { return DataLoader(core_.bind(binding)); }

  /// See skip_first_batches.
  [[nodiscard]] DataLoader skip_first(std::int64_t batches) const { return DataLoader(core_.skip_first(batches)); }

 private:
  detail::LoaderCore core_;
};

/// The same loader without the first `batches` batches of its next pass; the passes after that one are whole. Epochs
/// count on, so that the order is that of the epoch. For resuming by `DataLoader::state_dict` this is not needed.
/// Local: every rank skips as many.
/// @throws UsageError  batches < 0.
template <class Loader>
[[nodiscard]] Loader skip_first_batches(const Loader& loader, std::int64_t batches) requires requires {
  loader.skip_first(batches);
}
{ return loader.skip_first(batches); }

/// A loader over a data set, which is moved or copied in. It is one of these, looked for in this order:
///   - with an index: `get_batch(c10::ArrayRef<size_t>)` and `size()`, as all of `torch::data` that can be indexed,
///   with
///     its chains of `.map(...)`;
///   - of single samples: `get(size_t)` and `size()`;
///   - a stream: `get_batch(size_t count)` gives the next samples; an empty optional ends the epoch, and `reset()`, if
///     there is one, begins the next (torch::data's StatefulDataset and StreamDataset);
///   - a range of samples, gone through from its beginning in each epoch.
/// @param collate  makes a batch of what was read: of the result of `get_batch`, or of a std::vector of single samples.
///                 Without it, batches stay as they are and single samples are stacked (tree.hpp). Copied for each
///                 worker, as the data set is where it can be copied; one that cannot be copied is shared by them.
/// @throws UsageError  an option is out of range, contradicts another one, or does not fit the data set.
template <class Dataset, class Collate = detail::DefaultCollate<std::remove_cvref_t<Dataset>>>
requires detail::AnyDataset<std::remove_cvref_t<Dataset>>
[[nodiscard]] auto make_data_loader(Dataset&& dataset, const DataLoaderOptions& options = {}, Collate collate = {}) {
  using Data = std::remove_cvref_t<Dataset>;
  using Batch = detail::CollatedBy<Data, Collate>;
  auto reader = std::make_shared<detail::Reader<Data, Collate>>(
      detail::Reader<Data, Collate>{std::forward<Dataset>(dataset), std::move(collate)});
  return DataLoader<Batch>(detail::LoaderCore(detail::dataset_ops<Batch>(std::move(reader)), options));
}

}  // namespace accel
