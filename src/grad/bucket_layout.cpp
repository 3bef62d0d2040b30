#include "grad/bucket_layout.hpp"

#include <map>

namespace accel::detail {

std::vector<Bucket> layout_buckets(std::span<const ParameterFacts> parameters, std::span<const std::size_t> order,
                                   const BucketLimits& limits) {
  std::vector<Bucket> buckets;
  std::map<int, std::size_t> open;  // of each kind, the bucket being filled
  std::map<int, bool> first_done;
  for (const std::size_t parameter : order) {
    const ParameterFacts& facts = parameters[parameter];
    const std::int64_t limit = first_done[facts.kind] ? limits.bytes : limits.first_bytes;
    auto found = open.find(facts.kind);
    if (found != open.end() && (buckets[found->second].numel + facts.numel) * facts.itemsize > limit) {
      first_done[facts.kind] = true;
      open.erase(found);
      found = open.end();
    }
    if (found == open.end()) {
      found = open.emplace(facts.kind, buckets.size()).first;
      buckets.push_back({.kind = facts.kind, .numel = 0, .slots = {}});
    }
    Bucket& bucket = buckets[found->second];
    bucket.slots.push_back({.parameter = parameter, .offset = bucket.numel, .numel = facts.numel});
    bucket.numel += facts.numel;
  }
  return buckets;
}

}  // namespace accel::detail
