#include "data/sharded_sampler.hpp"

#include <algorithm>

namespace accel::detail {
namespace {

std::size_t divided_up(std::size_t count, std::size_t by) {
  return (count + by - 1) / by;
}

}  // namespace

ShardedSampler::ShardedSampler(const Sharding& sharding)
    : sharding_(sharding), size_(static_cast<std::size_t>(sharding.size)) {
  sharding_.first = std::min(sharding_.first, sharding_.samples);
  left_ = sharding_.samples - sharding_.first;
  if (sharding_.cuts) {
    const auto& cuts = *sharding_.cuts;
    first_batch_ = static_cast<std::size_t>(std::lower_bound(cuts.begin(), cuts.end(), sharding_.first) - cuts.begin());
    batches_of_all_ = cuts.size() - 1 - std::min(first_batch_, cuts.size() - 1);
    rounds_ = batches_of_all_ / size_;
    return;
  }
  const std::size_t full = left_ / sharding_.batch_size;
  batches_of_all_ = sharding_.drop_last ? full : divided_up(left_, sharding_.batch_size);
  // Without deal_last a short batch counts as one: ranks may have a short last batch in a round of their own.
  rounds_ = (sharding_.deal_last ? full : batches_of_all_) / size_;
}

std::size_t ShardedSampler::batches_of(std::size_t rank) const {
  const std::size_t rest = batches_of_all_ - rounds_ * size_;
  if (rest == 0 || (sharding_.drop_last && size_ > 1)) return rounds_;
  if (completes()) return rounds_ + 1;
  if (!sharding_.deal_last || sharding_.cuts) return rounds_ + (rank < rest ? 1 : 0);
  const std::size_t rows = left_ - rounds_ * size_ * sharding_.batch_size;
  return rounds_ + (rank * divided_up(rows, size_) < rows ? 1 : 0);
}

ShardedSampler::Span ShardedSampler::cut(std::size_t batch) const {
  const auto& cuts = *sharding_.cuts;
  const std::size_t count = cuts.size() - 1;
  const std::size_t begin = cuts[batch % count] + batch / count * sharding_.samples;
  return {begin, begin + cuts[batch % count + 1] - cuts[batch % count]};
}

ShardedSampler::Span ShardedSampler::span_of(std::size_t index) const {
  const auto rank = static_cast<std::size_t>(sharding_.rank);
  if (sharding_.cuts) return cut(first_batch_ + index * size_ + rank);
  Span span;
  if (sharding_.deal_last && index == rounds_) {
    const std::size_t start = sharding_.first + rounds_ * size_ * sharding_.batch_size;
    const std::size_t part = divided_up(sharding_.samples - start, size_);
    span = {start + rank * part, start + (rank + 1) * part};
  } else {
    span.begin = sharding_.first + (index * size_ + rank) * sharding_.batch_size;
    span.end = span.begin + sharding_.batch_size;
  }
  if (!completes()) span.end = std::min(span.end, sharding_.samples);
  return span;
}

std::vector<std::size_t> ShardedSampler::batch(std::size_t index) const {
  const auto [begin, end] = span_of(index);
  std::vector<std::size_t> positions;
  positions.reserve(end - begin);
  for (std::size_t at = begin; at < end; ++at) positions.push_back(at % sharding_.samples);
  return positions;
}

std::size_t ShardedSampler::own_rows(std::size_t index) const {
  const auto [begin, end] = span_of(index);
  return std::clamp(sharding_.samples, begin, end) - begin;
}

std::size_t ShardedSampler::position_after(std::size_t index) const {
  if (!sharding_.cuts) return std::min(sharding_.samples, sharding_.first + (index + 1) * size_ * sharding_.batch_size);
  const auto& cuts = *sharding_.cuts;
  return cuts[std::min(cuts.size() - 1, first_batch_ + (index + 1) * size_)];
}

std::size_t ShardedSampler::remainder() const {
  if (!completes()) return 0;
  if (!sharding_.cuts) return left_ % (sharding_.batch_size * size_);
  return batches_of_all_ % size_ == 0 ? 0 : sharding_.samples - cut(first_batch_ + rounds_ * size_).begin;
}

bool ShardedSampler::completes() const {
  return sharding_.even_batches && !sharding_.drop_last && size_ > 1;
}

}  // namespace accel::detail
