#include <accel/dataset_ops.hpp>
#include <accel/to_device.hpp>

namespace accel::detail {

void place_tensor(at::Tensor& tensor, c10::Device device, bool non_blocking) {
  if (tensor.defined()) tensor = tensor.to(device, tensor.scalar_type(), non_blocking);
}

void pin_tensor(at::Tensor& tensor) {
  if (tensor.defined()) tensor = tensor.pin_memory();
}

}  // namespace accel::detail
