#include <accel/loader_core.hpp>

#include "data/loader_run.hpp"
#include "data/loader_state.hpp"

#include <utility>

namespace accel::detail {

/// One pass under way.
struct LoaderPassState {
  LoaderPassState() = default;
  ~LoaderPassState() { record->under_way = false; }
  LoaderPassState(const LoaderPassState&) = delete;
  LoaderPassState& operator=(const LoaderPassState&) = delete;

  std::shared_ptr<LoaderState> loader;  // owns what `run` refers to
  std::shared_ptr<PassRecord> record = std::make_shared<PassRecord>();
  std::unique_ptr<LoaderRun> run;
  std::optional<BatchRows> rows = std::nullopt;
  std::string uneven = {};
};

LoaderPassCore::LoaderPassCore(std::unique_ptr<LoaderPassState> state) : state_(std::move(state)) {}
LoaderPassCore::LoaderPassCore(LoaderPassCore&&) noexcept = default;
LoaderPassCore::~LoaderPassCore() = default;

bool LoaderPassCore::done() const {
  return state_->run->done();
}
Parcel LoaderPassCore::read() {
  RankBatch batch = state_->run->read();
  state_->rows = batch.rows;
  ++state_->record->batches;
  state_->record->position = state_->run->position();
  return std::move(batch.parcel);
}
std::optional<BatchRows> LoaderPassCore::rows() const {
  return state_->rows;
}
std::string LoaderPassCore::uneven() const {
  return state_->uneven;
}
void LoaderPassCore::exhausted() {
  state_->record->under_way = false;
  state_->record->exhausted = true;
  state_->run->finish();
}

LoaderCore::LoaderCore(std::shared_ptr<LoaderState> state) : state_(std::move(state)) {}

LoaderCore::LoaderCore(DatasetOps ops, const DataLoaderOptions& options) {
  check_loader_options(options, ops);
  auto progress = std::make_shared<LoaderProgress>();
  progress->seed = options.seed;
  state_ = std::make_shared<LoaderState>(std::make_shared<const DatasetOps>(std::move(ops)), options, LoaderBinding{},
                                         std::move(progress));
}

LoaderCore LoaderCore::bind(const LoaderBinding& binding) const {
  // A loader of its own: the one that was bound stays where it is.
  auto progress = std::make_shared<LoaderProgress>(*state_->progress);
  progress->pass = nullptr;
  auto state = std::make_shared<LoaderState>(state_->ops, state_->options, binding, std::move(progress));
  state->skip_once = state_->skip_once;
  state->check_binding();
  const std::int64_t epoch = state->progress->next_epoch;
  if (state->samples_of(epoch)) state->check_enough(state->sharding_of(state->plan_of(epoch, false), 0), "prepare");
  return LoaderCore(std::move(state));
}

LoaderCore LoaderCore::skip_first(std::int64_t batches) const {
  if (batches < 0)
    state_->usage_error("skip_first_batches",
                        cat("expected a number of batches >= 0, found ", batches, "; give how many to leave out"));
  auto state = std::make_shared<LoaderState>(state_->ops, state_->options, state_->binding, state_->progress);
  state->skip_once = batches;
  return LoaderCore(std::move(state));
}

const LoaderBinding& LoaderCore::binding() const {
  return state_->binding;
}
const DataLoaderOptions& LoaderCore::options() const {
  return state_->options;
}
bool LoaderCore::has_size() const {
  return state_->samples_of(state_->progress->next_epoch).has_value();
}

std::size_t LoaderCore::samples() const {
  const auto samples = state_->samples_of(state_->progress->next_epoch);
  if (!samples)
    state_->usage_error("samples",
                        "expected a loader that knows how many samples an epoch has, found one of a stream "
                        "whose length is not known; ask has_size()");
  return *samples;
}

std::size_t LoaderCore::size() const {
  const LoaderProgress& progress = *state_->progress;
  if (progress.pass && progress.pass->under_way && progress.pass->size) return *progress.pass->size;
  if (!has_size())
    state_->usage_error("size",
                        "expected a loader that knows how many batches it yields, found one of a stream whose "
                        "length is not known; ask has_size(), or count the batches");
  const EpochPlan plan = state_->plan_of(progress.next_epoch, false);
  return ShardedSampler(state_->sharding_of(plan, state_->first_of(plan, state_->skip_once))).batches();
}

std::size_t LoaderCore::remainder() const {
  if (!has_size()) return 0;
  return ShardedSampler(state_->sharding_of(state_->plan_of(state_->progress->next_epoch, false), 0)).remainder();
}

std::int64_t LoaderCore::epoch() const {
  return state_->progress->epoch;
}

void LoaderCore::set_epoch(std::int64_t epoch) const {
  if (epoch < 0)
    state_->usage_error("set_epoch", cat("expected an epoch >= 0, found ", epoch, "; the first epoch is 0"));
  LoaderProgress& progress = *state_->progress;
  // Of the epoch that a state was loaded for, the rest is still to come.
  if (epoch != progress.next_epoch) {
    progress.resume_at = 0;
    progress.resumed_batches = 0;
  }
  if (progress.pass && !progress.pass->under_way) progress.pass = nullptr;  // where it stopped is of no interest now
  progress.epoch = progress.next_epoch = epoch;
}

DataLoaderState LoaderCore::state_dict() const {
  const LoaderProgress& progress = *state_->progress;
  DataLoaderState state{.epoch = progress.next_epoch,
                        .batches = progress.resumed_batches,
                        .samples = static_cast<std::int64_t>(progress.resume_at),
                        .seed = progress.seed};
  // After a pass that was left early too: what it handed out is trained, the rest is not. Unless the program said where
  // to go on.
  const PassRecord* const pass = progress.pass.get();
  if (pass == nullptr || pass->exhausted || progress.next_epoch != pass->epoch + 1) return state;
  state.epoch = pass->epoch;
  state.batches = pass->batches;
  state.samples = static_cast<std::int64_t>(pass->position);
  return state;
}

void LoaderCore::load_state_dict(const DataLoaderState& state) const {
  const std::int64_t epoch = state.epoch;
  if (epoch < 0 || state.batches < 0 || state.samples < 0)
    state_->usage_error("load_state_dict", cat("expected epoch, batches and samples >= 0, found ", epoch, ", ",
                                               state.batches, " and ", state.samples, "; load what state_dict() gave"));
  LoaderProgress& progress = *state_->progress;
  const std::uint64_t seed = std::exchange(progress.seed, state.seed);
  if (const auto samples = state_->samples_of(epoch); samples && static_cast<std::size_t>(state.samples) > *samples) {
    progress.seed = seed;
    state_->usage_error("load_state_dict", cat("expected at most ", *samples,
                                               " samples, which is what an epoch has, "
                                               "found ",
                                               state.samples,
                                               "; load the state into a loader over the same "
                                               "data"));
  }
  progress.epoch = progress.next_epoch = epoch;
  progress.resume_at = static_cast<std::size_t>(state.samples);
  progress.resumed_batches = state.batches;
  progress.pass = nullptr;
}

LoaderPassCore LoaderCore::start_pass() const {
  LoaderState& loader = *state_;
  LoaderProgress& progress = *loader.progress;
  if (loader.ops->stream() && progress.pass && progress.pass->under_way)
    loader.usage_error("DataLoader",
                       "expected one pass over a stream at a time, found one under way; leave its loop "
                       "before the next is begun, or give each loop a stream of its own");
  const EpochPlan plan = loader.plan_of(progress.next_epoch, true);
  const std::int64_t skip = std::exchange(loader.skip_once, 0);
  const std::size_t first = loader.first_of(plan, skip);
  const Sharding sharding = loader.sharding_of(plan, first);
  const auto samples = loader.samples_of(plan.epoch);
  if (samples) loader.check_enough(sharding, "DataLoader");

  progress.epoch = progress.next_epoch++;
  progress.resume_at = 0;
  auto pass = std::make_unique<LoaderPassState>();
  pass->loader = state_;
  pass->record->epoch = plan.epoch;
  pass->record->batches = std::exchange(progress.resumed_batches, 0) + skip;
  pass->record->position = first;
  if (samples) pass->record->size = ShardedSampler(sharding).batches();
  pass->uneven = loader.uneven_text(sharding);
  progress.pass = pass->record;

  const LoaderBinding& binding = loader.binding;
  const bool dispatch = loader.dispatch();
  const PassFacts facts{.plan = plan,
                        .sharding = sharding,
                        .dispatch = dispatch,
                        .seed = progress.seed,
                        .num_workers = loader.options.num_workers,
                        .pin = loader.options.pin_memory && binding.device.is_cuda() && binding.device_placement,
                        .site = {binding.rank, binding.size}};
  std::unique_ptr<StepQueue> steps;
  if (!dispatch || binding.rank == 0)
    steps = std::make_unique<StepQueue>(
        loader.ops->stream()
            ? make_stream_steps(facts, *loader.ops,
                                loader.options.epoch_size ? loader.options.epoch_size : loader.ops->size)
            : make_index_steps(facts, *loader.ops),
        facts.num_workers, loader.options.prefetch_factor);
  pass->run = dispatch ? make_dispatched_run(std::move(steps), binding.group, *loader.ops,
                                             binding.active ? binding.active->next_dispatch() : 0)
                       : make_local_run(std::move(steps));
  return LoaderPassCore(std::move(pass));
}

}  // namespace accel::detail
