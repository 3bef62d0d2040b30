#include "comm/mpi_buffers.hpp"

#include "comm/mpi_pieces.hpp"
#include "comm/scale.hpp"
#include "runtime/session.hpp"

#include <accel/error.hpp>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstddef>
#include <cstring>

namespace accel::detail {
namespace {

// Broadcasts gain a little by pieces, all-gathers nothing (mpi_pieces.hpp).
constexpr std::int64_t kBroadcastPiece = std::int64_t{1} << 20;
// MPI_Reduce_scatter_block: 104 ms for 64 MiB a rank as one call, 36 in packed pieces of 64 KiB.
constexpr std::int64_t kScatterPiece = std::int64_t{1} << 16;

// Note [Two ranks]: with two ranks every element is combined exactly once, so the scaling can be part of the addition
// and costs no pass over memory of its own (measured: 64 MiB 14 ms, with a pass 20). MPI gives an operator no argument,
// but blocking collectives call it on the thread that called them: what it needs lies in thread-local storage. Should
// an MPI call it elsewhere, the result would be wrong, so that is noticed.
struct FusedScale {
  bool armed = false;
  c10::ScalarType dtype = c10::ScalarType::Float;
  double factor = 1.0;
  int ranks = 1;
};
thread_local FusedScale fused;
std::atomic<bool> called_elsewhere{false};

void add_scaled(void* from, void* into, int* numel, MPI_Datatype*) {
  if (!fused.armed)
    called_elsewhere.store(true);
  else
    add_and_scale(into, from, *numel, fused.dtype, fused.factor, fused.ranks);
}

MPI_Op fused_op() {
  static const MPI_Op op = [] {
    MPI_Op created = MPI_OP_NULL;
    require_mpi(MPI_Op_create(add_scaled, /*commute=*/1, &created), "MPI_Op_create");
    return created;
  }();
  return op;
}

class ArmFusedScale {
 public:
  explicit ArmFusedScale(const Reduction& reduction) {
    fused = {true, reduction.dtype, reduction.factor, reduction.op == ReduceOp::kAvg ? 2 : 1};
  }
  ~ArmFusedScale() { fused.armed = false; }
  ArmFusedScale(const ArmFusedScale&) = delete;
  ArmFusedScale& operator=(const ArmFusedScale&) = delete;
};

void all_reduce_two(void* data, std::int64_t numel, const Reduction& reduction, const Ring& ring) {
  const Element element = element_of(reduction.dtype);
  const auto size = static_cast<std::int64_t>(element.bytes);
  const MPI_Op op = fused_op();
  const ArmFusedScale armed(reduction);
  in_pieces(numel, kReducePiece / size, [&](std::int64_t first, std::int64_t count) {
    require_mpi(MPI_Allreduce(MPI_IN_PLACE, byte_at(data, first * size), static_cast<int>(count), element.type, op,
                              ring.communicator),
                "MPI_Allreduce");
  });
  if (called_elsewhere.load())
    throw InternalError(message(job_site(), "all_reduce",
                                "expected MPI to combine on the calling thread, found another one; please report this "
                                "with the name and version of the MPI"));
}

// Makes one block of the same piece of every rank's slice.
void pack_piece(std::vector<std::byte>& packed, const void* input, std::int64_t slice, std::int64_t first,
                std::int64_t bytes, int ranks) {
  packed.resize(static_cast<std::size_t>(bytes * ranks));
  for (int rank = 0; rank < ranks; ++rank)
    std::memcpy(packed.data() + rank * bytes, byte_at(input, rank * slice + first), static_cast<std::size_t>(bytes));
}

}  // namespace

void all_reduce_buffer(void* data, std::int64_t numel, const Reduction& reduction, const Ring& ring) {
  if (is_half(reduction.dtype)) return all_reduce_half(static_cast<std::uint16_t*>(data), numel, reduction, ring);
  if (ring.size == 2 && reduction.scales() && reduction.sums()) return all_reduce_two(data, numel, reduction, ring);
  const Element element = element_of(reduction.dtype);
  const auto size = static_cast<std::int64_t>(element.bytes);
  const MPI_Op op = mpi_op(reduction.op, reduction.dtype);
  const int divisor = reduction.op == ReduceOp::kAvg ? ring.size : 1;
  const std::int64_t piece = (reduction.scales() ? kScaledPiece : kReducePiece) / size;
  in_pieces(numel, piece, [&](std::int64_t first, std::int64_t count) {
    require_mpi(MPI_Allreduce(MPI_IN_PLACE, byte_at(data, first * size), static_cast<int>(count), element.type, op,
                              ring.communicator),
                "MPI_Allreduce");
    if (reduction.scales()) scale(byte_at(data, first * size), count, reduction.dtype, reduction.factor, divisor);
  });
}

void broadcast_buffer(void* data, std::int64_t bytes, int root, const Ring& ring) {
  in_pieces(bytes, kBroadcastPiece, [&](std::int64_t first, std::int64_t count) {
    require_mpi(MPI_Bcast(byte_at(data, first), static_cast<int>(count), MPI_BYTE, root, ring.communicator),
                "MPI_Bcast");
  });
}

void all_gather_buffer(void* output, const void* input, std::int64_t bytes, const Ring& ring) {
  const bool in_place = input == byte_at(output, ring.rank * bytes);
  const auto gather = [&](std::int64_t first, std::int64_t count, int received, MPI_Datatype type) {
    const void* const source = in_place ? MPI_IN_PLACE : byte_at(input, first);
    require_mpi(MPI_Allgather(source, static_cast<int>(count), MPI_BYTE, byte_at(output, first), received, type,
                              ring.communicator),
                "MPI_Allgather");
  };
  if (bytes > 0 && bytes <= kGatherPiece) return gather(0, bytes, static_cast<int>(bytes), MPI_BYTE);
  in_pieces(bytes, kGatherPiece, [&](std::int64_t first, std::int64_t count) {
    const StridedBytes strided(count, bytes);
    gather(first, count, 1, strided.get());
  });
}

void all_gather_ragged_buffer(void* output, const void* input, const std::vector<std::int64_t>& bytes,
                              const Ring& ring) {
  std::vector<std::int64_t> firsts;
  std::int64_t total = 0;
  for (const std::int64_t count : bytes) {
    firsts.push_back(total);
    total += count;
  }
  if (total == 0) return;
  const std::int64_t mine = bytes[static_cast<std::size_t>(ring.rank)];
  if (total <= INT_MAX) {
    const std::vector<int> counts(bytes.begin(), bytes.end());
    const std::vector<int> displacements(firsts.begin(), firsts.end());
    require_mpi(MPI_Allgatherv(input, static_cast<int>(mine), MPI_BYTE, output, counts.data(), displacements.data(),
                               MPI_BYTE, ring.communicator),
                "MPI_Allgatherv");
    return;
  }
  if (mine > 0)
    std::memcpy(byte_at(output, firsts[static_cast<std::size_t>(ring.rank)]), input, static_cast<std::size_t>(mine));
  for (int root = 0; root < ring.size; ++root)
    broadcast_buffer(byte_at(output, firsts[static_cast<std::size_t>(root)]), bytes[static_cast<std::size_t>(root)],
                     root, ring);
}

void reduce_scatter_buffer(void* output, const void* input, std::int64_t numel, const Reduction& reduction,
                           const Ring& ring) {
  if (is_half(reduction.dtype))
    return reduce_scatter_half(static_cast<std::uint16_t*>(output), static_cast<const std::uint16_t*>(input), numel,
                               reduction, ring);
  const Element element = element_of(reduction.dtype);
  const auto size = static_cast<std::int64_t>(element.bytes);
  const MPI_Op op = mpi_op(reduction.op, reduction.dtype);
  const int divisor = reduction.op == ReduceOp::kAvg ? ring.size : 1;
  std::vector<std::byte> packed;
  in_pieces(numel, kScatterPiece / size, [&](std::int64_t first, std::int64_t count) {
    pack_piece(packed, input, numel * size, first * size, count * size, ring.size);
    require_mpi(MPI_Reduce_scatter_block(packed.data(), byte_at(output, first * size), static_cast<int>(count),
                                         element.type, op, ring.communicator),
                "MPI_Reduce_scatter_block");
    if (reduction.scales()) scale(byte_at(output, first * size), count, reduction.dtype, reduction.factor, divisor);
  });
}

}  // namespace accel::detail
