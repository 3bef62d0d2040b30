#include "data/loader_state.hpp"
#include "runtime/session.hpp"

#include <accel/dataset_ops.hpp>

namespace accel::detail {
namespace {

constexpr const char* kCall = "make_data_loader";
constexpr std::size_t kMostWorkers = 1024;

void refuse_together(bool both, const char* first, const char* second) {
  if (both)
    job_usage_error(kCall, cat("expected ", first, " or ", second,
                               ", found both; each says by itself which samples a "
                               "batch has: leave one out"));
}

void check_stream(const DataLoaderOptions& options, const DatasetOps& ops) {
  const auto refuse = [](bool given, const char* option) {
    if (given)
      job_usage_error(kCall, cat("expected no ", option,
                                 " for a stream, found one; a stream comes in its own order: "
                                 "use a data set with an index, or mix inside the stream"));
  };
  refuse(options.shuffle, "shuffle");
  refuse(options.sampler != nullptr, "sampler");
  refuse(options.batch_sampler != nullptr, "batch_sampler");
  if (ops.endless && !ops.size && !options.epoch_size)
    job_usage_error(kCall,
                    "expected a stream that ends or knows its size, found one that does neither; say how many samples "
                    "an epoch has with .epoch_size");
}

void check_batch_sampler(const DataLoaderOptions& options) {
  refuse_together(options.batch_size != 1, "batch_sampler", "batch_size");
  refuse_together(options.shuffle, "batch_sampler", "shuffle");
  refuse_together(options.sampler != nullptr, "batch_sampler", "sampler");
  refuse_together(options.drop_last, "batch_sampler", "drop_last");
  refuse_together(options.split_batches, "batch_sampler", "split_batches");
}

}  // namespace

void check_loader_options(const DataLoaderOptions& options, const DatasetOps& ops) {
  if (options.batch_size < 1)
    job_usage_error(kCall, cat("expected batch_size >= 1, found ", options.batch_size, "; set .batch_size"));
  if (options.prefetch_factor < 1 || options.prefetch_factor > kMostWorkers)
    job_usage_error(kCall, cat("expected prefetch_factor in 1..", kMostWorkers, ", found ", options.prefetch_factor,
                               "; 2 is the default"));
  if (options.num_workers > kMostWorkers)
    job_usage_error(kCall, cat("expected num_workers in 0..", kMostWorkers, ", found ", options.num_workers,
                               "; 0 reads in the program's own thread"));
  refuse_together(options.shuffle && options.sampler, "shuffle", "sampler");
  if (options.batch_sampler) check_batch_sampler(options);
  if (ops.stream()) return check_stream(options, ops);
  if (!ops.size)
    job_usage_error(kCall,
                    "expected a data set that knows its size, found one whose size() is empty; give it a size, "
                    "or make it a stream: get_batch(count)");
  if (options.epoch_size)
    job_usage_error(kCall,
                    "expected no epoch_size for a data set with an index, found one; choose samples with "
                    ".sampler, or take a subset of the data");
}

void refuse_rows() {
  job_usage_error("DataLoader",
                  "expected batches whose rows can be counted from a stream, found one without a tensor "
                  "that has dimensions; give batches with rows, or a vector of samples");
}

}  // namespace accel::detail
