#include <accel/data.hpp>
#include <accel/error.hpp>

#include "core/message.hpp"
#include "data/permutation.hpp"
#include "data/sharded_sampler.hpp"
#include "runtime/session.hpp"

namespace accel::detail {

class LoaderState {
 public:
  LoaderState(std::size_t samples, const DataLoaderOptions& loader_options, LoaderBinding to)
      : options(loader_options),
        binding(std::move(to)),
        sharding{.samples = samples,
                 .batch_size = static_cast<std::size_t>(loader_options.batch_size),
                 .rank = binding.rank,
                 .size = binding.size,
                 .drop_last = loader_options.drop_last,
                 .even_batches = loader_options.even_batches},
        sampler(sharding) {}

  const DataLoaderOptions options;
  const LoaderBinding binding;
  const Sharding sharding;
  const ShardedSampler sampler;
  std::int64_t epoch = 0;
  std::int64_t next_epoch = 0;
};

namespace {

// Ranks without a batch of their own would train on copies of the others' and call it data.
void check_enough(const LoaderState& state) {
  const auto size = static_cast<std::size_t>(state.binding.size);
  const std::size_t batches = state.sampler.batches_of_all();
  if (state.binding.size == 1 || !state.options.even_batches || state.sharding.samples == 0 || batches >= size) return;
  throw UsageError(message({state.binding.rank, state.binding.size}, "prepare",
                           cat("expected at least ", size, " batches, one a rank, found ", batches, " (",
                               state.sharding.samples, " samples, batch_size ", state.options.batch_size,
                               "): mpirun with more ranks than the data has batches; start fewer ranks, give a smaller "
                               "batch_size, or even_batches = false if ranks may go without")));
}

}  // namespace

LoaderCore::LoaderCore(std::shared_ptr<LoaderState> state) : state_(std::move(state)) {}

LoaderCore::LoaderCore(std::optional<std::size_t> samples, const DataLoaderOptions& options) {
  if (options.batch_size < 1)
    throw UsageError(message(job_site(), "make_data_loader",
                             cat("expected batch_size >= 1, found ", options.batch_size, "; set .batch_size")));
  if (!samples)
    throw UsageError(
        message(job_site(), "make_data_loader",
                "expected a data set that knows its size, found one whose size() is empty; iterate a stream "
                "through accel::pull or a loader of its own"));
  state_ = std::make_shared<LoaderState>(*samples, options, LoaderBinding{});
}

LoaderCore LoaderCore::bind(const LoaderBinding& binding) const {
  auto state = std::make_shared<LoaderState>(state_->sharding.samples, state_->options, binding);
  check_enough(*state);
  state->epoch = state_->epoch;
  state->next_epoch = state_->next_epoch;
  return LoaderCore(std::move(state));
}

const LoaderBinding& LoaderCore::binding() const {
  return state_->binding;
}
const DataLoaderOptions& LoaderCore::options() const {
  return state_->options;
}
std::size_t LoaderCore::samples() const {
  return state_->sharding.samples;
}
std::size_t LoaderCore::size() const {
  return state_->sampler.batches();
}
std::size_t LoaderCore::remainder() const {
  return state_->sampler.remainder();
}
std::int64_t LoaderCore::epoch() const {
  return state_->epoch;
}

void LoaderCore::set_epoch(std::int64_t epoch) const {
  if (epoch < 0)
    throw UsageError(message({state_->binding.rank, state_->binding.size}, "set_epoch",
                             cat("expected an epoch >= 0, found ", epoch, "; the first epoch is 0")));
  state_->epoch = epoch;
  state_->next_epoch = epoch;
}

IndexStream LoaderCore::start_pass() const {
  state_->epoch = state_->next_epoch++;
  IndexStream stream;
  stream.state_ = state_;
  stream.steps_ = state_->sampler.batches();
  if (state_->options.shuffle)
    stream.order_ = std::make_shared<const std::vector<std::size_t>>(
        permutation(state_->sharding.samples, state_->options.seed, static_cast<std::uint64_t>(state_->epoch)));
  return stream;
}

std::vector<std::size_t> IndexStream::read() {
  std::vector<std::size_t> batch = state_->sampler.batch(step_++);
  if (order_)
    for (auto& position : batch) position = (*order_)[position];
  return batch;
}

}  // namespace accel::detail
