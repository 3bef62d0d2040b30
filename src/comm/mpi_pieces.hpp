#pragma once

#include "comm/mpi_element.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

// How large buffers are cut for MPI, whose counts and displacements are ints.
namespace accel::detail {

// Measured, 2 ranks on one host: a 64 MiB all-reduce takes 28-35 ms as one call and 13-14 ms in pieces of 1 MiB, whose
// temporaries stay in cache. Half of it where we touch the piece again.
constexpr std::int64_t kReducePiece = std::int64_t{1} << 20;
constexpr std::int64_t kScaledPiece = std::int64_t{1} << 19;
constexpr std::int64_t kGatherPiece = std::int64_t{1} << 26;

inline std::byte* byte_at(void* data, std::int64_t offset) {
  return static_cast<std::byte*>(data) + offset;
}
inline const std::byte* byte_at(const void* data, std::int64_t offset) {
  return static_cast<const std::byte*>(data) + offset;
}

template <class Each>
void in_pieces(std::int64_t total, std::int64_t piece, Each each) {
  for (std::int64_t first = 0; first < total; first += piece) each(first, std::min(piece, total - first));
}

/// `count` bytes that are repeated every `stride` bytes, wherever in memory that leads: displacements of MPI_Allgatherv
/// are ints and end at 2 GiB.
class StridedBytes {
 public:
  StridedBytes(std::int64_t count, std::int64_t stride) {
    MPI_Datatype block = MPI_DATATYPE_NULL;
    require_mpi(MPI_Type_contiguous(static_cast<int>(count), MPI_BYTE, &block), "MPI_Type_contiguous");
    const int rc = MPI_Type_create_resized(block, 0, static_cast<MPI_Aint>(stride), &type_);
    MPI_Type_free(&block);
    require_mpi(rc, "MPI_Type_create_resized");
    require_mpi(MPI_Type_commit(&type_), "MPI_Type_commit");
  }
  ~StridedBytes() { MPI_Type_free(&type_); }
  StridedBytes(const StridedBytes&) = delete;
  StridedBytes& operator=(const StridedBytes&) = delete;
  [[nodiscard]] MPI_Datatype get() const { return type_; }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

}  // namespace accel::detail
