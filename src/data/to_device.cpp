#include <accel/to_device.hpp>

namespace accel::detail {

void place_tensor(at::Tensor& tensor, c10::Device device) {
  if (tensor.defined()) tensor = tensor.to(device, tensor.scalar_type());
}

}  // namespace accel::detail
