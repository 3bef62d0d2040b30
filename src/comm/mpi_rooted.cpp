// Collectives to or from one rank, and between all pairs.
#include "comm/mpi_buffers.hpp"
#include "comm/mpi_pieces.hpp"
#include "comm/scale.hpp"

#include <algorithm>
#include <climits>
#include <cstring>

namespace accel::detail {
namespace {

using Counts = std::vector<std::int64_t>;

Counts firsts_of(const Counts& counts) {
  Counts firsts;
  std::int64_t first = 0;
  for (const std::int64_t count : counts) {
    firsts.push_back(first);
    first += count;
  }
  return firsts;
}

// What is a part of a round: bytes `first` up to `first + piece` of what each rank gives, as far as there are any.
// Beyond 2 GiB parts are packed, as displacements of MPI are ints.
Counts parts_of(const Counts& counts, std::int64_t first, std::int64_t piece) {
  Counts parts;
  for (const std::int64_t count : counts) parts.push_back(std::clamp<std::int64_t>(count - first, 0, piece));
  return parts;
}

std::vector<int> ints(const Counts& counts) {
  return {counts.begin(), counts.end()};
}

std::int64_t round_piece(const Ring& ring) {
  return std::max<std::int64_t>(kGatherPiece / ring.size, 1);
}

// Copies part by part between a packed round and the buffer it is of.
void pack(std::byte* packed, const void* buffer, const Counts& counts, std::int64_t first, const Counts& parts) {
  const Counts firsts = firsts_of(counts);
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    if (parts[rank] > 0)
      std::memcpy(packed, byte_at(buffer, firsts[rank] + first), static_cast<std::size_t>(parts[rank]));
    packed += parts[rank];
  }
}
void unpack(void* buffer, const std::byte* packed, const Counts& counts, std::int64_t first, const Counts& parts) {
  const Counts firsts = firsts_of(counts);
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    if (parts[rank] > 0)
      std::memcpy(byte_at(buffer, firsts[rank] + first), packed, static_cast<std::size_t>(parts[rank]));
    packed += parts[rank];
  }
}

std::size_t total_of(const Counts& counts) {
  std::int64_t total = 0;
  for (const std::int64_t count : counts) total += count;
  return static_cast<std::size_t>(total);
}

void gather_small(void* output, const void* input, const Counts& bytes, int root, const Ring& ring) {
  const std::vector<int> counts = ints(bytes);
  const std::vector<int> firsts = ints(firsts_of(bytes));
  require_mpi(MPI_Gatherv(input, counts[static_cast<std::size_t>(ring.rank)], MPI_BYTE, output, counts.data(),
                          firsts.data(), MPI_BYTE, root, ring.communicator),
              "MPI_Gatherv");
}

void exchange_ragged(void* output, const void* input, const Counts& sent, const Counts& received, const Ring& ring) {
  const std::vector<int> sends = ints(sent);
  const std::vector<int> receives = ints(received);
  const std::vector<int> send_firsts = ints(firsts_of(sent));
  const std::vector<int> receive_firsts = ints(firsts_of(received));
  require_mpi(MPI_Alltoallv(input, sends.data(), send_firsts.data(), MPI_BYTE, output, receives.data(),
                            receive_firsts.data(), MPI_BYTE, ring.communicator),
              "MPI_Alltoallv");
}

void exchange_equal(void* output, const void* input, std::int64_t bytes, const Ring& ring) {
  const auto exchange = [&](std::int64_t first, int count, MPI_Datatype type) {
    require_mpi(
        MPI_Alltoall(byte_at(input, first), count, type, byte_at(output, first), count, type, ring.communicator),
        "MPI_Alltoall");
  };
  if (bytes > 0 && bytes <= kGatherPiece) return exchange(0, static_cast<int>(bytes), MPI_BYTE);
  in_pieces(bytes, kGatherPiece, [&](std::int64_t first, std::int64_t count) {
    const StridedBytes strided(count, bytes);
    exchange(first, 1, strided.get());
  });
}

// All ranks have to take the same way, so what decides must be known to all.
std::int64_t longest_of(const Splits& bytes, const Ring& ring) {
  if (bytes.longest != Splits::kUnknown) return bytes.longest;
  std::int64_t longest = std::max(*std::max_element(bytes.sent.begin(), bytes.sent.end()),
                                  *std::max_element(bytes.received.begin(), bytes.received.end()));
  require_mpi(MPI_Allreduce(MPI_IN_PLACE, &longest, 1, MPI_INT64_T, MPI_MAX, ring.communicator), "MPI_Allreduce");
  return longest;
}

}  // namespace

void reduce_to_root(void* data, std::int64_t numel, const Reduction& reduction, int root, const Ring& ring) {
  if (is_half(reduction.dtype))
    return reduce_to_root_half(static_cast<std::uint16_t*>(data), numel, reduction, root, ring);
  const Element element = element_of(reduction.dtype);
  const auto size = static_cast<std::int64_t>(element.bytes);
  const MPI_Op op = mpi_op(reduction.op, reduction.dtype);
  const int divisor = reduction.op == ReduceOp::kAvg ? ring.size : 1;
  const bool receives = ring.rank == root;
  const std::int64_t piece = (reduction.scales() ? kScaledPiece : kReducePiece) / size;
  in_pieces(numel, piece, [&](std::int64_t first, std::int64_t count) {
    std::byte* const part = byte_at(data, first * size);
    require_mpi(MPI_Reduce(receives ? MPI_IN_PLACE : part, receives ? part : nullptr, static_cast<int>(count),
                           element.type, op, root, ring.communicator),
                "MPI_Reduce");
    if (receives && reduction.scales()) scale(part, count, reduction.dtype, reduction.factor, divisor);
  });
}

void gather_to_root(void* output, const void* input, const Counts& bytes, int root, const Ring& ring) {
  const std::size_t total = total_of(bytes);
  if (total == 0) return;
  if (total <= INT_MAX) return gather_small(output, input, bytes, root, ring);
  const std::int64_t piece = round_piece(ring);
  std::vector<std::byte> packed;
  for (std::int64_t first = 0; first < *std::max_element(bytes.begin(), bytes.end()); first += piece) {
    const Counts parts = parts_of(bytes, first, piece);
    if (ring.rank == root) packed.resize(total_of(parts));
    const bool gives = parts[static_cast<std::size_t>(ring.rank)] > 0;
    gather_small(packed.data(), gives ? byte_at(input, first) : nullptr, parts, root, ring);
    if (ring.rank == root) unpack(output, packed.data(), bytes, first, parts);
  }
}

void scatter_from_root(void* output, const void* input, std::int64_t bytes, int root, const Ring& ring) {
  const bool gives = ring.rank == root;
  const bool in_place = gives && output == byte_at(input, ring.rank * bytes);
  const auto scatter = [&](std::int64_t first, std::int64_t count, int sent, MPI_Datatype type) {
    void* const target = in_place ? MPI_IN_PLACE : byte_at(output, first);
    require_mpi(MPI_Scatter(gives ? byte_at(input, first) : nullptr, sent, type, target, static_cast<int>(count),
                            MPI_BYTE, root, ring.communicator),
                "MPI_Scatter");
  };
  if (bytes > 0 && bytes <= kGatherPiece) return scatter(0, bytes, static_cast<int>(bytes), MPI_BYTE);
  in_pieces(bytes, kGatherPiece, [&](std::int64_t first, std::int64_t count) {
    const StridedBytes strided(count, bytes);
    scatter(first, count, 1, strided.get());
  });
}

void exchange_buffers(void* output, const void* input, const Splits& bytes, const Ring& ring) {
  if (bytes.equal) return exchange_equal(output, input, bytes.longest, ring);
  const std::int64_t longest = longest_of(bytes, ring);
  if (longest == 0) return;
  if (longest <= INT_MAX / ring.size) return exchange_ragged(output, input, bytes.sent, bytes.received, ring);
  const std::int64_t piece = round_piece(ring);
  std::vector<std::byte> packed;
  std::vector<std::byte> arrived;
  for (std::int64_t first = 0; first < longest; first += piece) {
    const Counts sent = parts_of(bytes.sent, first, piece);
    const Counts received = parts_of(bytes.received, first, piece);
    packed.resize(total_of(sent));
    arrived.resize(total_of(received));
    pack(packed.data(), input, bytes.sent, first, sent);
    exchange_ragged(arrived.data(), packed.data(), sent, received, ring);
    unpack(output, arrived.data(), bytes.received, first, received);
  }
}

}  // namespace accel::detail
