#include "data/sharded_sampler.hpp"

#include <algorithm>

namespace accel::detail {

ShardedSampler::ShardedSampler(const Sharding& sharding) : sharding_(sharding) {
  const std::size_t full = sharding_.samples / sharding_.batch_size;
  const bool short_one = sharding_.samples % sharding_.batch_size != 0 && !sharding_.drop_last;
  batches_of_all_ = full + (short_one ? 1 : 0);

  const auto size = static_cast<std::size_t>(sharding_.size);
  const auto rank = static_cast<std::size_t>(sharding_.rank);
  const std::size_t rounds = batches_of_all_ / size;
  const std::size_t rest = batches_of_all_ % size;
  if (sharding_.drop_last)
    batches_ = rounds;
  else if (completes())
    batches_ = rounds + (rest > 0 ? 1 : 0);
  else
    batches_ = rounds + (rank < rest ? 1 : 0);
}

std::vector<std::size_t> ShardedSampler::batch(std::size_t index) const {
  const std::size_t dealt = index * static_cast<std::size_t>(sharding_.size) + static_cast<std::size_t>(sharding_.rank);
  const std::size_t first = dealt * sharding_.batch_size;
  std::size_t end = first + sharding_.batch_size;
  if (!completes()) end = std::min(end, sharding_.samples);
  std::vector<std::size_t> positions;
  positions.reserve(end - first);
  for (std::size_t at = first; at < end; ++at) positions.push_back(at % sharding_.samples);
  return positions;
}

std::size_t ShardedSampler::remainder() const {
  if (!completes()) return 0;
  return sharding_.samples % (sharding_.batch_size * static_cast<std::size_t>(sharding_.size));
}

bool ShardedSampler::completes() const {
  return sharding_.even_batches && !sharding_.drop_last && sharding_.size > 1;
}

}  // namespace accel::detail
