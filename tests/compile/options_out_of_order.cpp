// Options are named in the order in which they are declared, so that none is given twice by accident.
// expect: order
#include <accel/accelerator.hpp>

void train(accel::Accelerator& accelerator) {
#ifdef MISUSE
  accelerator.backward(at::Tensor(), {.more = true, .items = 4});
#else
  accelerator.backward(at::Tensor(), {.items = 4, .more = true});
#endif
}
