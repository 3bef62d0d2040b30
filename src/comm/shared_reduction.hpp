#pragma once

#include "comm/host_board.hpp"
#include "comm/mpi_buffers.hpp"
#include "comm/ops.hpp"
#include "comm/reduce_helper.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace accel::detail {

/// The buffers of all ranks of one host that are reduced together, in one generation after the other.
///
/// On one host the range is given out in pieces to whoever asks, so that a rank that has no core at the moment holds
/// nobody up: each piece of all buffers is summed in order of rank and written to all of them. Across hosts the range
/// is cut into fixed slices instead, one for a rank, since the same ranks must call MPI together.
class SharedReduction final : public HelperTask {
 public:
  /// @param data    the buffers, in order of local rank, each of numel elements
  /// @param marks   memory of MarkSet::bytes(local ranks), zeros at first
  /// @param slices  0 on one host; else ranks of each host that carry a slice across
  /// @param keep    what the memory lives in
  SharedReduction(std::shared_ptr<HostBoard> board, std::vector<std::byte*> data, std::byte* marks, std::int64_t numel,
                  c10::ScalarType dtype, int slices, std::shared_ptr<const void> keep);

  [[nodiscard]] std::uint32_t pieces() const { return pieces_; }

  /// This rank's buffer is filled. @param wake  others may begin; else this thread completes it at once
  std::uint64_t begin(const ReduceSpec& spec, bool wake);

  /// Takes part in what is to be done on one host, and waits until it is. Throws MeetFailure.
  void complete(std::uint64_t generation);

  /// This rank's slice: summed over the host, over hosts (`across`: one rank of each), and written to all buffers of
  /// this host. Throws MeetFailure, MpiFailure. @return bytes given to MPI
  std::int64_t reduce_slice(std::uint64_t generation, MPI_Comm across);

  void await_all(std::uint64_t generation);

  /// The background's part: whoever waits for the result sees for itself what goes wrong.
  void run(std::uint64_t generation) noexcept override;

 private:
  void help(std::uint64_t generation, bool busy);
  [[nodiscard]] std::vector<std::byte*> at(std::int64_t first) const;
  void reduce_across(std::int64_t first, std::int64_t count, std::byte* partial, MPI_Comm across);

  const std::shared_ptr<HostBoard> board_;
  const std::vector<std::byte*> data_;
  MarkSet marks_;
  const std::int64_t numel_;
  const std::size_t itemsize_;
  const int slices_;
  const std::shared_ptr<const void> keep_;
  Reduction reduction_;  // written before a rank arrives, read once all have
  std::int64_t piece_ = 0;
  std::uint32_t pieces_ = 0;
  std::uint64_t generation_ = 0;
};

}  // namespace accel::detail
