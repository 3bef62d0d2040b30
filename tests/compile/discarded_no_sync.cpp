// Nothing would be kept from syncing.
// expect: nodiscard|unused-result
#include <accel/accelerator.hpp>

void train(accel::Accelerator& accelerator, accel::NamedParameters& model) {
#ifdef MISUSE
  accelerator.no_sync(model);
#else
  const auto quiet = accelerator.no_sync(model);
#endif
}
