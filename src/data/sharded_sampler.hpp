#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace accel::detail {

/// Sizes that decide who reads what. All ranks have equal ones, except `rank`.
struct Sharding {
  std::size_t samples = 0;
  std::size_t batch_size = 1;  ///< of one rank; >= 1
  int rank = 0;
  int size = 1;
  bool drop_last = false;
  bool even_batches = true;
  std::size_t first = 0;   ///< the position to begin at: a pass that goes on where another one stopped
  bool deal_last = false;  ///< rows of a last step that is not full are dealt in equal parts (dispatched batches)
  /// Batches of any sizes: batch b is the positions [cuts[b], cuts[b + 1]) of the order. Null: all of batch_size.
  std::shared_ptr<const std::vector<std::size_t>> cuts = nullptr;
};

/// Which positions of an epoch's order are in which batch of a rank. Pure arithmetic.
///
/// The order, from `first` on, is cut into batches, which are dealt to the ranks in turn: batch `b` belongs to rank
/// `b mod size`, as its `b / size`-th. Of a last round that is not complete, `even_batches` completes all ranks'
/// batches from the beginning of the order (as often as it takes; batches of any sizes are repeated whole), `drop_last`
/// leaves it out, and otherwise ranks get what there is.
class ShardedSampler {
 public:
  explicit ShardedSampler(const Sharding& sharding);

  /// Batches of this rank.
  [[nodiscard]] std::size_t batches() const { return batches_of(static_cast<std::size_t>(sharding_.rank)); }
  [[nodiscard]] std::size_t batches_of(std::size_t rank) const;

  /// Batches from `first` on, before they are dealt.
  [[nodiscard]] std::size_t batches_of_all() const { return batches_of_all_; }

  /// Positions in the order of this rank's batch `index`, each < samples.
  [[nodiscard]] std::vector<std::size_t> batch(std::size_t index) const;

  /// How many of them, counted from the first, are no repeats.
  [[nodiscard]] std::size_t own_rows(std::size_t index) const;

  /// Where the batch begins in the order, repeats counted on beyond its end.
  [[nodiscard]] std::size_t begin_of(std::size_t index) const { return span_of(index).begin; }

  /// Samples of the order that all ranks together have had after their batch `index`.
  [[nodiscard]] std::size_t position_after(std::size_t index) const;

  /// Rows of the last step over all ranks that are no repeats; 0: all of them.
  [[nodiscard]] std::size_t remainder() const;

 private:
  struct Span {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  [[nodiscard]] Span span_of(std::size_t index) const;
  [[nodiscard]] Span cut(std::size_t batch) const;
  [[nodiscard]] bool completes() const;

  Sharding sharding_;
  std::size_t size_ = 1;
  std::size_t left_ = 0;         // samples from `first` on
  std::size_t first_batch_ = 0;  // with cuts: the batch that begins at `first`
  std::size_t batches_of_all_ = 0;
  std::size_t rounds_ = 0;  // steps in which every rank has a full batch
};

}  // namespace accel::detail
