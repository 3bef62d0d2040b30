#include "data/data_scope.hpp"
#include "data/loader_run.hpp"

#include <algorithm>
#include <exception>
#include <utility>

namespace accel::detail {
namespace {

constexpr std::size_t kMostNamed = 8;

std::string named(c10::ArrayRef<std::size_t> indices) {
  std::string text = indices.size() == 1 ? "sample " : "samples ";
  for (std::size_t at = 0; at < indices.size() && at < kMostNamed; ++at) text += cat(at > 0 ? ", " : "", indices[at]);
  return indices.size() > kMostNamed ? cat(text, ", ... (", indices.size(), " in all)") : text;
}

/// Steps of a map-style data set: indices are claimed, batches made of them.
class IndexSteps final : public StepSource {
 public:
  IndexSteps(PassFacts facts, const DatasetOps& ops) : facts_(std::move(facts)), ops_(ops) {
    Sharding sharding = facts_.sharding;
    const int first = facts_.dispatch ? 0 : sharding.rank;
    const int last = facts_.dispatch ? sharding.size - 1 : sharding.rank;
    for (sharding.rank = first; sharding.rank <= last; ++sharding.rank) shards_.emplace_back(sharding);
    // Here, in the program's thread, which may use the data set itself as soon as the pass has begun.
    for (std::size_t worker = 0; worker < std::max<std::size_t>(facts_.num_workers, 1); ++worker)
      fetch_.push_back(ops_.fetch(facts_.num_workers > 0));
  }

  bool empty() override { return shards_.front().batches() == 0; }

  std::shared_ptr<Step> next() override {
    if (step_ == shards_.front().batches()) return nullptr;
    auto step = std::make_shared<Step>();
    step->position_after = shards_.front().position_after(step_);
    for (const ShardedSampler& shard : shards_) {
      RankBatch& part = step->parts.emplace_back();
      if (step_ >= shard.batches()) continue;
      part.indices = shard.batch(step_);
      part.rows = {static_cast<std::int64_t>(part.indices.size()), static_cast<std::int64_t>(shard.own_rows(step_))};
      part.begin = shard.begin_of(step_);
      part.present = true;
      part.last = step_ + 1 == shard.batches();
      if (facts_.plan.order)
        for (std::size_t& index : part.indices) index = (*facts_.plan.order)[index];
    }
    ++step_;
    return step;
  }

  void make(std::size_t worker, Step& step) override {
    for (std::size_t at = 0; at < step.parts.size(); ++at) {
      RankBatch& part = step.parts[at];
      if (!part.present) continue;
      const DataScope scope(facts_.seed, facts_.plan.epoch, part.begin, facts_.num_workers > 0);
      part.parcel = fetch(worker, part.indices);
      if (at == 0) continue;
      part.packed = ops_.pack(part.parcel);  // only dispatched steps have parts of other ranks
      part.parcel = nullptr;
    }
    if (facts_.pin && step.parts.front().parcel) ops_.pin(step.parts.front().parcel);
  }

 private:
  Parcel fetch(std::size_t worker, const std::vector<std::size_t>& indices) {
    const FetchBatch& fetch = fetch_[worker];
    try {
      return fetch(indices);
    } catch (...) {
      const std::vector<std::size_t> bad = first_bad(fetch, indices);
      throw_data_error(facts_.site, facts_.plan, named(bad));
    }
  }

  // Which one it was: the one that fails alone as well. All of them, if the failure is one of the whole batch.
  static std::vector<std::size_t> first_bad(const FetchBatch& fetch, const std::vector<std::size_t>& indices) {
    for (const std::size_t index : indices) {
      try {
        (void)fetch({index});
      } catch (...) {
        return {index};
      }
    }
    return indices;
  }

  const PassFacts facts_;
  const DatasetOps& ops_;
  std::vector<ShardedSampler> shards_;
  std::vector<FetchBatch> fetch_;
  std::size_t step_ = 0;
};

}  // namespace

std::unique_ptr<StepSource> make_index_steps(const PassFacts& facts, const DatasetOps& ops) {
  return std::make_unique<IndexSteps>(facts, ops);
}

}  // namespace accel::detail
