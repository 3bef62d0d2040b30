#include <accel/device.hpp>

#include <ATen/Context.h>

namespace accel {

void set_seed(std::uint64_t seed, const SeedOptions& options) {
  if (options.device_specific) seed += static_cast<std::uint64_t>(process().rank);
  at::manual_seed(seed);
  if (!options.deterministic) return;
  at::globalContext().setDeterministicAlgorithms(true, false);
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setBenchmarkCuDNN(false);
}

}  // namespace accel
