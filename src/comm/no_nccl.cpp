#include "comm/nccl.hpp"

#include "core/message.hpp"

#include <accel/error.hpp>

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace accel::detail {

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const NcclSetup& setup) {
  throw UsageError(message({setup.process.rank, setup.process.size}, "nccl",
                           "expected a build with NCCL for CUDA tensors at more than one rank, found one without; "
                           "configure with ACCEL_WITH_NCCL=ON, or move the tensor to the CPU"));
}

}  // namespace accel::detail
