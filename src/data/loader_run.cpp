#include "data/loader_run.hpp"

#include <accel/error.hpp>

#include <algorithm>
#include <exception>
#include <utility>

namespace accel::detail {
namespace {

class LocalRun final : public LoaderRun {
 public:
  explicit LocalRun(std::unique_ptr<StepQueue> steps) : steps_(std::move(steps)) {}

  [[nodiscard]] bool done() const override { return steps_->done(); }
  [[nodiscard]] std::size_t position() const override { return position_; }
  RankBatch read() override {
    const std::shared_ptr<Step> step = steps_->take();
    position_ = step->position_after;
    return std::move(step->parts.front());
  }

 private:
  std::unique_ptr<StepQueue> steps_;
  std::size_t position_ = 0;
};

}  // namespace

StepQueue::StepQueue(std::unique_ptr<StepSource> source, std::size_t workers, std::size_t prefetch_factor)
    : source_(std::move(source)), done_(source_->empty()) {
  if (done_ || workers == 0) return;
  StepSource* const steps = source_.get();
  prefetcher_ = std::make_unique<Prefetcher>(PrefetchStages{.next = [steps]() -> Parcel { return steps->next(); },
                                                            .make =
                                                                [steps](std::size_t worker, const Parcel& claim) {
                                                                  steps->make(worker, *static_cast<Step*>(claim.get()));
                                                                  return claim;
                                                                }},
                                             workers, workers * prefetch_factor);
}
StepQueue::~StepQueue() = default;

std::shared_ptr<Step> StepQueue::take() {
  std::shared_ptr<Step> step;
  if (prefetcher_) {
    step = std::static_pointer_cast<Step>(prefetcher_->take());
  } else {
    step = source_->next();
    source_->make(0, *step);
  }
  done_ = step->parts.front().last;
  return step;
}

std::unique_ptr<LoaderRun> make_local_run(std::unique_ptr<StepQueue> steps) {
  return std::make_unique<LocalRun>(std::move(steps));
}

void throw_data_error(const Site& site, const EpochPlan& plan, const std::string& what_samples) {
  std::string found = "an exception that is no std::exception";
  try {
    throw;
  } catch (const DataError&) {  // of a loader inside this data set, which knows better
    throw;
  } catch (const std::exception& error) {
    found = error.what();
  } catch (...) {
  }
  std::throw_with_nested(DataError(message(
      site, "DataLoader", cat("expected to read ", what_samples, " in epoch ", plan.epoch, ", found: ", found))));
}

}  // namespace accel::detail
