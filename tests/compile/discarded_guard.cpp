// A guard that nobody holds would end its micro-batch before the forward.
// expect: nodiscard|unused-result
#include <accel/accelerator.hpp>

void train(accel::Accelerator& accelerator, accel::NamedParameters& model) {
#ifdef MISUSE
  accelerator.accumulate(model);
#else
  const auto micro = accelerator.accumulate(model);
#endif
}
