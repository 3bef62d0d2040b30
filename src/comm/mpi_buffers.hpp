#pragma once

#include "comm/channel.hpp"
#include "comm/mpi_element.hpp"

#include <cstdint>
#include <vector>

namespace accel::detail {

/// The communicator of a group with what every call needs to know of it.
struct Ring {
  MPI_Comm communicator = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
};

// Collectives on plain memory, in pieces that fit the cache and MPI's int counts. All throw MpiFailure. Buffers may be
// of any size; a buffer without elements calls nothing.

void all_reduce_buffer(void* data, std::int64_t numel, const Reduction& reduction, const Ring& ring);
void broadcast_buffer(void* data, std::int64_t bytes, int root, const Ring& ring);

/// `output` is size x bytes, `input` may not overlap it.
void all_gather_buffer(void* output, const void* input, std::int64_t bytes, const Ring& ring);

/// Rank r gives bytes[r]; they follow one another in `output`.
void all_gather_ragged_buffer(void* output, const void* input, const std::vector<std::int64_t>& bytes,
                              const Ring& ring);

/// `input` is size x numel elements, `output` gets slice `rank`.
void reduce_scatter_buffer(void* output, const void* input, std::int64_t numel, const Reduction& reduction,
                           const Ring& ring);

/// Writes to `data` on `root` only.
void reduce_to_root(void* data, std::int64_t numel, const Reduction& reduction, int root, const Ring& ring);

/// Rank r gives bytes[r]; they follow one another in `output`, which is used on `root` only.
void gather_to_root(void* output, const void* input, const std::vector<std::int64_t>& bytes, int root,
                    const Ring& ring);

/// `input`, used on `root` only, is size x bytes; `output` gets slice `rank`, and may be that slice.
void scatter_from_root(void* output, const void* input, std::int64_t bytes, int root, const Ring& ring);

/// @param bytes  the splits in bytes
void exchange_buffers(void* output, const void* input, const Splits& bytes, const Ring& ring);

// The reductions for float16 and bfloat16: summed in float32, rounded once, and half the bytes on the wire.

void all_reduce_half(std::uint16_t* data, std::int64_t numel, const Reduction& reduction, const Ring& ring);
void reduce_to_root_half(std::uint16_t* data, std::int64_t numel, const Reduction& reduction, int root,
                         const Ring& ring);
void reduce_scatter_half(std::uint16_t* output, const std::uint16_t* input, std::int64_t numel,
                         const Reduction& reduction, const Ring& ring);

}  // namespace accel::detail
