// Two guards for one micro-batch would count it twice.
// expect: deleted
#include <accel/accelerator.hpp>

void train(accel::Accelerator& accelerator, accel::NamedParameters& model) {
  auto micro = accelerator.accumulate(model);
#ifdef MISUSE
  const auto copy = micro;
#else
  const auto& same = micro;
  static_cast<void>(same);
#endif
}
