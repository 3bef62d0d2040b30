#include "comm/shared_reduction.hpp"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <utility>

namespace accel::detail {
namespace {

// A piece is large enough that giving it out costs nothing, and small enough that the ranks end together.
constexpr std::size_t kSmallestPiece = std::size_t{16} << 10;
constexpr std::size_t kLargestPiece = std::size_t{512} << 10;
constexpr std::size_t kPiecesOfRank = 8;
// What crosses to other hosts at a time: MPI is faster in pieces that stay in cache.
constexpr std::size_t kAcrossPiece = std::size_t{1} << 20;

std::int64_t whole_lines(std::size_t bytes, std::size_t itemsize) {
  return static_cast<std::int64_t>(up_to_line(bytes) / itemsize);
}

}  // namespace

SharedReduction::SharedReduction(std::shared_ptr<HostBoard> board, std::vector<std::byte*> data, std::byte* marks,
                                 std::int64_t numel, c10::ScalarType dtype, int slices,
                                 std::shared_ptr<const void> keep)
    : board_(std::move(board)),
      data_(std::move(data)),
      marks_(marks, board_->ranks().size(), board_->ranks().local_rank),
      numel_(numel),
      itemsize_(c10::elementSize(dtype)),
      slices_(slices),
      keep_(std::move(keep)) {
  reduction_.dtype = dtype;
  const std::size_t bytes = static_cast<std::size_t>(numel) * itemsize_;
  if (slices_ > 0) {
    const auto parts = static_cast<std::size_t>(slices_);
    piece_ = whole_lines((bytes + parts - 1) / parts, itemsize_);
    pieces_ = static_cast<std::uint32_t>(slices_);
  } else {
    piece_ = whole_lines(std::clamp(bytes / (kPiecesOfRank * data_.size()), kSmallestPiece, kLargestPiece), itemsize_);
    pieces_ = static_cast<std::uint32_t>((numel + piece_ - 1) / piece_);
  }
}

std::vector<std::byte*> SharedReduction::at(std::int64_t first) const {
  std::vector<std::byte*> buffers = data_;
  for (std::byte*& buffer : buffers) buffer += static_cast<std::size_t>(first) * itemsize_;
  return buffers;
}

std::uint64_t SharedReduction::begin(const ReduceSpec& spec, bool wake) {
  reduction_.op = spec.op;
  reduction_.factor = spec.factor;
  marks_.arrive(++generation_, wake);
  return generation_;
}

void SharedReduction::help(std::uint64_t generation, bool busy) {
  const auto may_help = [&] { return marks_.finished(generation, pieces_) || marks_.all_arrived(generation); };
  board_->wait(marks_, generation, may_help, busy);
  while (const auto claimed = marks_.claim(generation, pieces_)) {
    // From the end: what backward wrote last is in cache still.
    const std::int64_t first = static_cast<std::int64_t>(pieces_ - 1 - *claimed) * piece_;
    const std::vector<std::byte*> buffers = at(first);
    combine(buffers, buffers, std::min(piece_, numel_ - first), reduction_, board_->ranks().group_size);
    marks_.piece_done(generation, pieces_);
  }
}

void SharedReduction::complete(std::uint64_t generation) {
  help(generation, true);
  await_all(generation);
}

void SharedReduction::await_all(std::uint64_t generation) {
  board_->wait(marks_, generation, [&] { return marks_.finished(generation, pieces_); });
}

void SharedReduction::run(std::uint64_t generation) noexcept {
  try {
    help(generation, false);
  } catch (...) {  // NOLINT(bugprone-empty-catch): the one who waits meets the same
  }
}

std::int64_t SharedReduction::reduce_slice(std::uint64_t generation, MPI_Comm across) {
  const int slice = board_->ranks().local_rank;
  if (slice >= slices_) return 0;
  board_->wait(marks_, generation, [&] { return marks_.all_arrived(generation); });
  const std::size_t wide = c10::elementSize(accumulator_of(reduction_.dtype));
  const std::int64_t first = std::min(numel_, slice * piece_);
  const std::int64_t end = std::min(numel_, first + piece_);
  const auto step = static_cast<std::int64_t>(kAcrossPiece / wide);
  std::vector<std::byte> partial(static_cast<std::size_t>(std::min(step, end - first)) * wide);
  for (std::int64_t at = first; at < end; at += step)
    reduce_across(at, std::min(step, end - at), partial.data(), across);
  marks_.piece_done(generation, pieces_);
  return (end - first) * static_cast<std::int64_t>(wide);
}

void SharedReduction::reduce_across(std::int64_t first, std::int64_t count, std::byte* partial, MPI_Comm across) {
  const std::vector<std::byte*> buffers = at(first);
  combine_partial(buffers, partial, count, reduction_);
  const c10::ScalarType dtype = accumulator_of(reduction_.dtype);
  require_mpi(MPI_Allreduce(MPI_IN_PLACE, partial, static_cast<int>(count), element_of(dtype).type,
                            mpi_op(reduction_.op, dtype), across),
              "MPI_Allreduce");
  write_out(partial, buffers, count, reduction_, board_->ranks().group_size);
}

}  // namespace accel::detail
