#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace accel {

/// The samples of one epoch, in order; for `DataLoaderOptions::sampler`. A pure function: every rank asks for itself
/// and must get the same, and asking again for the same epoch gives the same again.
using Sampler = std::function<std::vector<std::size_t>(std::int64_t epoch)>;

/// The batches of one epoch, in order, of any sizes; for `DataLoaderOptions::batch_sampler`. As Sampler.
using BatchSampler = std::function<std::vector<std::vector<std::size_t>>(std::int64_t epoch)>;

/// How make_data_loader forms batches.
struct DataLoaderOptions {
  /// Samples of a batch on one rank (with split_batches: on all ranks together); >= 1.
  std::int64_t batch_size = 1;
  bool shuffle = false;    ///< another order each epoch, the same for any number of ranks; not for streams
  std::uint64_t seed = 0;  ///< of the shuffle and of data_generator(); the order is a function of seed and epoch alone
  bool drop_last = false;  ///< leave out a short last batch, and a last step that not all ranks have a batch for
  /// batch_size counts the samples of all ranks, which each get an equal part. It must be a multiple of their number.
  bool split_batches = false;
  /// All ranks get equally many batches, all full: the last step is completed with samples from the beginning. Turn it
  /// off to see each sample exactly once; then ranks may differ in their number of batches, and a loop that trains
  /// needs `Accelerator::join_uneven_inputs`. At one rank there is nothing to even out. `gather_for_metrics` leaves the
  /// repeated samples out either way.
  bool even_batches = true;
  /// Rank 0 reads and sends the others their batches: for data that only one process can read. Nothing: for streams on,
  /// for data sets with an index off. The rows of a last step that is not full are dealt in equal parts, and only what
  /// is missing to that is repeated.
  std::optional<bool> dispatch_batches = std::nullopt;
  /// Threads that read ahead, each with a copy of the data set (a stream is read by one at a time); 0: batches are read
  /// when they are asked for. Order and contents do not depend on it.
  std::size_t num_workers = 0;
  std::size_t prefetch_factor = 2;  ///< batches that each worker may be ahead; >= 1
  bool pin_memory = false;          ///< page-locked batches, where they go to a CUDA device
  bool non_blocking = false;        ///< copies to a CUDA device do not wait; takes effect with pin_memory
  Sampler sampler = {};             ///< in place of `shuffle`: which samples, in which order
  BatchSampler batch_sampler = {};  ///< in place of batch_size, shuffle, sampler and drop_last
  /// Streams only: an epoch ends after so many samples, if the stream does not end before. Must be given for a stream
  /// that neither ends nor knows its size.
  std::optional<std::size_t> epoch_size = std::nullopt;
};

/// Where a loader stands, counted in what was handed to the program; what workers have read ahead is not in it.
struct DataLoaderState {
  std::int64_t epoch = 0;
  std::int64_t batches = 0;  ///< handed out on this rank in this epoch
  std::int64_t samples = 0;  ///< handed out on all ranks together in this epoch: what a pass goes on from
  std::uint64_t seed = 0;    ///< of the order that `samples` counts in
  friend bool operator==(const DataLoaderState&, const DataLoaderState&) = default;
};

}  // namespace accel
