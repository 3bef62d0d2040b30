// Fields that nothing can be written to.
// expect: accel_fields takes T& \(not const\)
#include <accel/to_device.hpp>

#include <tuple>

struct Batch {
  at::Tensor state;
#ifdef MISUSE
  friend auto accel_fields(const Batch& batch) {
    return std::tie(batch.state);
  }
#else
  friend auto accel_fields(Batch& batch) {
    return std::tie(batch.state);
  }
#endif
};

auto moved(const Batch& batch) {
  return accel::to_device(batch, c10::kCPU);
}
