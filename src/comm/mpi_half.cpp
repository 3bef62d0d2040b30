#include "comm/combine.hpp"
#include "comm/mpi_buffers.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace accel::detail {
namespace {

// A piece is cut into one shard a rank, of this many elements at most: what arrives stays in the second cache.
constexpr std::int64_t kShard = std::int64_t{1} << 16;

// Combines `ranks` shards of `numel` elements that lie behind one another, in order of rank, and rounds once.
void combine_shards(std::uint16_t* output, std::uint16_t* shards, std::int64_t numel, const Reduction& reduction,
                    int ranks) {
  std::vector<std::byte*> inputs;
  for (int rank = 0; rank < ranks; ++rank) inputs.push_back(reinterpret_cast<std::byte*>(shards + rank * numel));
  auto* const to = reinterpret_cast<std::byte*>(output);
  combine(inputs, {&to, 1}, numel, reduction, ranks);
}

// How a piece is cut into shards: the first `extra` ranks have one element more.
struct Shards {
  std::vector<int> counts;
  std::vector<int> firsts;

  Shards(std::int64_t numel, int ranks) {
    int first = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      firsts.push_back(first);
      counts.push_back(static_cast<int>(numel / ranks + (rank < numel % ranks ? 1 : 0)));
      first += counts.back();
    }
  }

  [[nodiscard]] int count_of(int rank) const { return counts[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int first_of(int rank) const { return firsts[static_cast<std::size_t>(rank)]; }
};

class HalfReducer {
 public:
  HalfReducer(const Reduction& reduction, const Ring& ring) : reduction_(reduction), ring_(ring) {}

  // Every rank combines its shard of the piece, then all learn all shards.
  void all_reduce_piece(std::uint16_t* piece, std::int64_t numel) {
    const Shards shards(numel, ring_.size);
    combine_own(piece, shards, piece + shards.first_of(ring_.rank));
    require_mpi(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, piece, shards.counts.data(), shards.firsts.data(),
                               MPI_UINT16_T, ring_.communicator),
                "MPI_Allgatherv");
  }

  // Likewise, but only `root` learns them; the pieces of the others keep what is in them.
  void reduce_piece(std::uint16_t* piece, std::int64_t numel, int root) {
    const Shards shards(numel, ring_.size);
    const bool learns = ring_.rank == root;
    own_.resize(static_cast<std::size_t>(shards.count_of(ring_.rank)) + 1);
    combine_own(piece, shards, learns ? piece + shards.first_of(ring_.rank) : own_.data());
    require_mpi(MPI_Gatherv(learns ? MPI_IN_PLACE : own_.data(), learns ? 0 : shards.count_of(ring_.rank), MPI_UINT16_T,
                            learns ? piece : nullptr, shards.counts.data(), shards.firsts.data(), MPI_UINT16_T, root,
                            ring_.communicator),
                "MPI_Gatherv");
  }

  // `packed` holds the same piece of every slice, ours goes to `output`.
  void reduce_scatter_piece(std::uint16_t* output, const std::uint16_t* packed, std::int64_t numel) {
    received_.resize(static_cast<std::size_t>(numel) * static_cast<std::size_t>(ring_.size));
    require_mpi(MPI_Alltoall(packed, static_cast<int>(numel), MPI_UINT16_T, received_.data(), static_cast<int>(numel),
                             MPI_UINT16_T, ring_.communicator),
                "MPI_Alltoall");
    combine_shards(output, received_.data(), numel, reduction_, ring_.size);
  }

 private:
  // Leaves what all ranks have for this rank's shard, combined, in `output`, which may be that shard.
  void combine_own(const std::uint16_t* piece, const Shards& shards, std::uint16_t* output) {
    const int mine = shards.count_of(ring_.rank);
    std::vector<int> received_counts(static_cast<std::size_t>(ring_.size), mine);
    std::vector<int> received_firsts;
    for (int rank = 0; rank < ring_.size; ++rank) received_firsts.push_back(rank * mine);
    received_.resize(static_cast<std::size_t>(mine) * static_cast<std::size_t>(ring_.size) + 1);
    require_mpi(MPI_Alltoallv(piece, shards.counts.data(), shards.firsts.data(), MPI_UINT16_T, received_.data(),
                              received_counts.data(), received_firsts.data(), MPI_UINT16_T, ring_.communicator),
                "MPI_Alltoallv");
    combine_shards(output, received_.data(), mine, reduction_, ring_.size);
  }

  const Reduction& reduction_;
  const Ring& ring_;
  std::vector<std::uint16_t> received_;
  std::vector<std::uint16_t> own_;
};

}  // namespace

void all_reduce_half(std::uint16_t* data, std::int64_t numel, const Reduction& reduction, const Ring& ring) {
  HalfReducer reducer(reduction, ring);
  const std::int64_t piece = kShard * ring.size;
  for (std::int64_t first = 0; first < numel; first += piece)
    reducer.all_reduce_piece(data + first, std::min(piece, numel - first));
}

void reduce_to_root_half(std::uint16_t* data, std::int64_t numel, const Reduction& reduction, int root,
                         const Ring& ring) {
  HalfReducer reducer(reduction, ring);
  const std::int64_t piece = kShard * ring.size;
  for (std::int64_t first = 0; first < numel; first += piece)
    reducer.reduce_piece(data + first, std::min(piece, numel - first), root);
}

void reduce_scatter_half(std::uint16_t* output, const std::uint16_t* input, std::int64_t numel,
                         const Reduction& reduction, const Ring& ring) {
  HalfReducer reducer(reduction, ring);
  std::vector<std::uint16_t> packed;
  for (std::int64_t first = 0; first < numel; first += kShard) {
    const std::int64_t count = std::min(kShard, numel - first);
    packed.resize(static_cast<std::size_t>(count * ring.size));
    for (int rank = 0; rank < ring.size; ++rank)
      std::memcpy(packed.data() + rank * count, input + rank * numel + first,
                  static_cast<std::size_t>(count) * sizeof(std::uint16_t));
    reducer.reduce_scatter_piece(output + first, packed.data(), count);
  }
}

}  // namespace accel::detail
