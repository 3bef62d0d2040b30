// A guard that outlives its scope would stretch the micro-batch over the next one.
// expect: deleted
#include <accel/accelerator.hpp>

#include <utility>

void train(accel::Accelerator& accelerator, accel::NamedParameters& model) {
  auto micro = accelerator.accumulate(model);
#ifdef MISUSE
  const auto moved = std::move(micro);
#else
  static_cast<void>(micro.syncs());
#endif
}
