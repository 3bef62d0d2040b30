#include "data/loader_state.hpp"

#include "data/permutation.hpp"

#include <accel/error.hpp>

#include <algorithm>
#include <utility>

namespace accel::detail {
namespace {

using Indices = std::vector<std::size_t>;

}  // namespace

LoaderState::LoaderState(std::shared_ptr<const DatasetOps> dataset, const DataLoaderOptions& loader_options,
                         LoaderBinding to, std::shared_ptr<LoaderProgress> shared)
    : ops(std::move(dataset)), options(loader_options), binding(std::move(to)), progress(std::move(shared)) {}

void LoaderState::usage_error(const char* call, const std::string& text) const {
  throw UsageError(message({binding.rank, binding.size}, call, text));
}

bool LoaderState::dispatch() const {
  return binding.size > 1 && options.dispatch_batches.value_or(ops->stream());
}

void LoaderState::check_indices(const Indices& indices, const char* option) const {
  const auto outside =
      std::find_if(indices.begin(), indices.end(), [this](std::size_t index) { return index >= *ops->size; });
  if (outside != indices.end())
    usage_error("DataLoader",
                cat("expected indices below ", *ops->size, " from ", option, ", found ", *outside, " at position ",
                    outside - indices.begin(), "; the data set has ", *ops->size, " samples"));
}

EpochPlan LoaderState::plan_of(std::int64_t epoch, bool ordered) const {
  EpochPlan plan{.epoch = epoch};
  if (ops->stream()) {
    plan.samples = samples_of(epoch).value_or(0);
  } else if (options.batch_sampler) {
    Indices order;
    Indices cuts{0};
    for (const Indices& batch : options.batch_sampler(epoch)) {
      order.insert(order.end(), batch.begin(), batch.end());
      cuts.push_back(order.size());
    }
    check_indices(order, "batch_sampler");
    plan.samples = order.size();
    plan.order = std::make_shared<const Indices>(std::move(order));
    plan.cuts = std::make_shared<const Indices>(std::move(cuts));
  } else if (options.sampler) {
    Indices order = options.sampler(epoch);
    check_indices(order, "sampler");
    plan.samples = order.size();
    plan.order = std::make_shared<const Indices>(std::move(order));
  } else {
    plan.samples = *ops->size;
    if (options.shuffle && ordered)
      plan.order =
          std::make_shared<const Indices>(permutation(plan.samples, progress->seed, static_cast<std::uint64_t>(epoch)));
  }
  return plan;
}

std::optional<std::size_t> LoaderState::samples_of(std::int64_t epoch) const {
  if (!ops->stream()) return plan_of(epoch, false).samples;
  if (ops->size && options.epoch_size) return std::min(*ops->size, *options.epoch_size);
  // A stream may end before its epoch_size; one that has no end does not.
  if (options.epoch_size && ops->endless) return options.epoch_size;
  return ops->size;
}

Sharding LoaderState::sharding_of(const EpochPlan& plan, std::size_t first) const {
  const auto size = static_cast<std::size_t>(binding.size);
  const auto batch_size = static_cast<std::size_t>(options.batch_size);
  Sharding sharding{.samples = plan.samples,
                    .batch_size = options.split_batches ? std::max<std::size_t>(batch_size / size, 1) : batch_size,
                    .rank = binding.rank,
                    .size = binding.size,
                    .drop_last = options.drop_last,
                    .even_batches = options.even_batches,
                    .first = first,
                    .deal_last = dispatch() && !plan.cuts,
                    .cuts = plan.cuts};
  if (binding.active && binding.active->join())
    sharding.even_batches = binding.active->join()->even_batches.value_or(options.even_batches);
  return sharding;
}

std::size_t LoaderState::first_of(const EpochPlan& plan, std::int64_t skip) const {
  const std::size_t first = progress->resume_at;
  if (skip == 0) return first;
  const Sharding sharding = sharding_of(plan, first);
  if (samples_of(plan.epoch)) return ShardedSampler(sharding).position_after(static_cast<std::size_t>(skip - 1));
  return first + static_cast<std::size_t>(skip) * static_cast<std::size_t>(sharding.size) * sharding.batch_size;
}

// Ranks without a batch of their own would train on copies of the others' and call it data.
void LoaderState::check_enough(const Sharding& sharding, const char* call) const {
  const auto size = static_cast<std::size_t>(sharding.size);
  if (size == 1 || !sharding.even_batches || sharding.deal_last || sharding.samples == 0 || sharding.first > 0) return;
  const std::size_t batches = ShardedSampler(sharding).batches_of_all();
  if (batches >= size) return;
  usage_error(call, cat("expected at least ", size, " batches, one a rank, found ", batches, " (", sharding.samples,
                        " samples, batch_size ", options.batch_size,
                        "): mpirun with more ranks than the data has batches; start fewer ranks, give a smaller "
                        "batch_size, or even_batches = false if ranks may go without"));
}

void LoaderState::check_binding() const {
  if (options.split_batches && options.batch_size % binding.size != 0)
    usage_error("prepare",
                cat("expected a batch_size that ", binding.size, " ranks can split, found ", options.batch_size,
                    "; with split_batches it counts the samples of all ranks: give a "
                    "multiple of ",
                    binding.size));
  if (dispatch() && !ops->pack)
    usage_error("prepare",
                "expected batches that rank 0 can send to the others (dispatch_batches), found a type that accel does "
                "not know; give it accel_fields, or set dispatch_batches = false where each rank can read for itself");
}

std::string LoaderState::uneven_text(const Sharding& sharding) const {
  if (sharding.size == 1 || sharding.even_batches || sharding.drop_last) return {};
  constexpr const char* kRemedy =
      "a loop that trains leaves the longer ranks waiting: use even_batches = true (the default), drop_last = true, or "
      "accelerator.join_uneven_inputs()";
  if (!samples_of(progress->epoch))
    return cat("the ranks may have different numbers of batches in this pass (a stream with even_batches = false); ",
               kRemedy);
  const ShardedSampler sampler(sharding);
  const std::size_t most = sampler.batches_of(0);
  const std::size_t least = sampler.batches_of(static_cast<std::size_t>(sharding.size) - 1);
  if (most == least) return {};
  return cat("expected equally many batches on all ranks, found ", most, " on rank 0 and ", least, " on rank ",
             sharding.size - 1, "; ", kRemedy);
}

}  // namespace accel::detail
