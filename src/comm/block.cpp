#include "comm/channel.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

namespace accel::detail {

Block::Block(const at::Tensor& tensor, Content content) {
  if (tensor.is_contiguous() && !tensor.is_neg()) {
    block_ = tensor;
    return;
  }
  // Copies are made for the wire: no history, and inference tensors may be written outside of inference mode.
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  target_ = tensor;
  block_ = content == Content::kKeep ? tensor.contiguous().resolve_neg() : at::empty(tensor.sizes(), tensor.options());
}

void Block::copy_back() const {
  if (!target_.defined()) return;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  target_.copy_(block_);
}

}  // namespace accel::detail
