#include "data/data_scope.hpp"
#include "data/loader_run.hpp"
#include "data/stream_rows.hpp"

#include <algorithm>
#include <exception>
#include <utility>

namespace accel::detail {
namespace {

/// Steps of a stream: rows are claimed, as they come, and collated to batches.
///
/// A step reads the rows of all ranks. One step is read before the one before it is given out: only then is it known
/// which is the last.
class StreamSteps final : public StepSource {
 public:
  StreamSteps(PassFacts facts, const DatasetOps& ops, std::optional<std::size_t> limit)
      : facts_(std::move(facts)), ops_(ops), rows_(ops, limit) {}

  bool empty() override {
    const DataScope scope(facts_.seed, facts_.plan.epoch, facts_.sharding.first, false);
    guarded([&] {
      ops_.restart();
      skip(facts_.sharding.first);
      ahead_ = read_step();
    });
    return !has_batch(ahead_);
  }

  std::shared_ptr<Step> next() override {
    if (!has_batch(ahead_)) return nullptr;
    const DataScope scope(facts_.seed, facts_.plan.epoch, ahead_->position_after, facts_.num_workers > 0);
    std::shared_ptr<Step> step = std::move(ahead_);
    guarded([&] { ahead_ = read_step(); });
    for (std::size_t part = 0; part < step->parts.size(); ++part)
      step->parts[part].last = ahead_ == nullptr || !ahead_->parts[part].present;
    return step;
  }

  void make(std::size_t, Step& step) override {
    for (std::size_t at = 0; at < step.parts.size(); ++at) {
      RankBatch& part = step.parts[at];
      if (!part.present) continue;
      const DataScope scope(facts_.seed, facts_.plan.epoch, part.begin, facts_.num_workers > 0);
      try {
        part.parcel = ops_.collate(part.parcel);
      } catch (...) {
        throw_data_error(facts_.site, facts_.plan,
                         cat("the ", part.rows.given, " rows of the batch that begins at row ", part.begin));
      }
      if (at == 0) continue;
      part.packed = ops_.pack(part.parcel);
      part.parcel = nullptr;
    }
    if (facts_.pin && step.parts.front().parcel) ops_.pin(step.parts.front().parcel);
  }

 private:
  [[nodiscard]] static bool has_batch(const std::shared_ptr<Step>& step) {
    return step != nullptr && step->parts.front().present;
  }
  [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(facts_.sharding.size); }
  [[nodiscard]] bool completes() const {
    return facts_.sharding.even_batches && !facts_.sharding.drop_last && ranks() > 1;
  }

  template <class Call>
  void guarded(Call call) {
    try {
      call();
    } catch (...) {
      throw_data_error(facts_.site, facts_.plan, cat("the stream's row ", rows_.taken()));
    }
  }

  // The first rows complete the last step: they are kept where one may have to be completed.
  void keep_first(const Rows& rows) {
    const std::size_t most = ranks() * facts_.sharding.batch_size;
    if (!completes() || first_.count >= most || rows.count == 0) return;
    const std::size_t count = std::min(most - first_.count, rows.count);
    first_.parcels.push_back(rows_.part(rows, 0, count));
    first_.count += count;
  }

  void skip(std::size_t count) {
    while (count > 0) {
      const Rows rows = rows_.take(std::min(count, facts_.sharding.batch_size));
      if (rows.count == 0) return;
      keep_first(rows);
      count -= rows.count;
    }
  }

  // Null at the end.
  std::shared_ptr<Step> read_step() {
    const Sharding& sharding = facts_.sharding;
    const std::size_t full = ranks() * sharding.batch_size;
    const std::size_t begin = rows_.taken();
    Rows rows;
    while (rows.count < full) {
      Rows more = rows_.take(std::min(full - rows.count, sharding.batch_size));
      if (more.count == 0) break;
      rows.count += more.count;
      std::move(more.parcels.begin(), more.parcels.end(), std::back_inserter(rows.parcels));
    }
    if (rows.count == 0 || (rows.count < full && sharding.drop_last)) return nullptr;
    keep_first(rows);
    return step_of(std::move(rows), begin, rows_.taken());
  }

  std::shared_ptr<Step> step_of(Rows rows, std::size_t begin, std::size_t samples) {
    const Sharding& sharding = facts_.sharding;
    const std::size_t own = rows.count;
    const bool short_one = own < ranks() * sharding.batch_size;
    const std::size_t part = short_one && sharding.deal_last ? (own + ranks() - 1) / ranks() : sharding.batch_size;
    if (short_one && completes())
      for (std::size_t missing = ranks() * part - own; missing > 0;) {
        const std::size_t more = std::min(missing, std::min(first_.count, samples));
        rows.parcels.push_back(rows_.part(first_, 0, more));
        rows.count += more;
        missing -= more;
      }
    auto step = std::make_shared<Step>();
    step->position_after = samples;
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      if (!facts_.dispatch && rank != static_cast<std::size_t>(sharding.rank)) continue;
      RankBatch& mine = step->parts.emplace_back();
      const std::size_t from = std::min(rank * part, rows.count);
      const std::size_t to = std::min(from + part, rows.count);
      mine.begin = begin + from;
      mine.present = from < to;
      if (!mine.present) continue;
      mine.parcel = rows_.part(rows, from, to);
      mine.rows = {static_cast<std::int64_t>(to - from), static_cast<std::int64_t>(std::clamp(own, from, to) - from)};
    }
    return step;
  }

  const PassFacts facts_;
  const DatasetOps& ops_;
  StreamRows rows_;
  Rows first_;
  std::shared_ptr<Step> ahead_;
};

}  // namespace

std::unique_ptr<StepSource> make_stream_steps(const PassFacts& facts, const DatasetOps& ops,
                                              std::optional<std::size_t> limit) {
  return std::make_unique<StreamSteps>(facts, ops, limit);
}

}  // namespace accel::detail
