#include <accel/error.hpp>
#include <accel/foreign_loader.hpp>

#include "core/message.hpp"

namespace accel::detail {

void check_foreign(const LoaderBinding& binding, const ForeignLoaderOptions& options) {
  if (binding.size == 1 || options.already_sharded) return;
  throw UsageError(
      message({binding.rank, binding.size}, "prepare_loader",
              cat("expected a loader that accel can shard, found one it does not know, which would give the "
                  "same batches to all ",
                  binding.size,
                  " ranks; use accel::make_data_loader, or say {.already_sharded = true} if each rank reads "
                  "its own part")));
}

void refuse_null_loader(const LoaderBinding& binding) {
  throw UsageError(message({binding.rank, binding.size}, "prepare_loader",
                           "expected a loader, found a null pointer; make the loader first"));
}

}  // namespace accel::detail
