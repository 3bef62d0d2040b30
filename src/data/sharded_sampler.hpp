#pragma once

#include <cstddef>
#include <vector>

namespace accel::detail {

/// Sizes that decide who reads what. All ranks have equal ones, except `rank`.
struct Sharding {
  std::size_t samples = 0;
  std::size_t batch_size = 1;  ///< >= 1
  int rank = 0;
  int size = 1;
  bool drop_last = false;
  bool even_batches = true;
};

/// Which positions of an epoch's order are in which batch of a rank. Pure arithmetic.
///
/// The order is cut into batches, which are dealt to the ranks in turn: batch `b` belongs to rank `b mod size`, as its
/// `b / size`-th. Of a last round that is not complete, `even_batches` completes all ranks' batches from the beginning
/// of the order (as often as it takes), `drop_last` leaves it out, and otherwise ranks get what there is.
class ShardedSampler {
 public:
  explicit ShardedSampler(const Sharding& sharding);

  /// Batches of this rank.
  [[nodiscard]] std::size_t batches() const { return batches_; }

  /// Batches in the whole data, before they are dealt.
  [[nodiscard]] std::size_t batches_of_all() const { return batches_of_all_; }

  /// Positions in the order of this rank's batch `index`, each < samples.
  [[nodiscard]] std::vector<std::size_t> batch(std::size_t index) const;

  /// Rows of the last step over all ranks that are no repeats; 0: all of them.
  [[nodiscard]] std::size_t remainder() const;

 private:
  [[nodiscard]] bool completes() const;

  Sharding sharding_;
  std::size_t batches_of_all_ = 0;
  std::size_t batches_ = 0;
};

}  // namespace accel::detail
