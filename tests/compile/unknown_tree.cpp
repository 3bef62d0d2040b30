// A struct that accel cannot take apart names the function to write.
// expect: auto accel_fields\(Replay& r\)
#include <accel/tree.hpp>

#include <tuple>

struct Batch {
  at::Tensor state;
  int horizon = 0;
#ifndef MISUSE
  friend auto accel_fields(Batch& batch) {
    return std::tie(batch.state, batch.horizon);
  }
#endif
};

auto rows(const std::vector<Batch>& batches) {
  return accel::concatenate(batches);
}
