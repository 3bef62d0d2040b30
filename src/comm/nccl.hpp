#pragma once

#include <accel/collectives.hpp>

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <functional>
#include <string>

namespace c10d {
class Backend;
}

namespace accel::detail {

struct NcclSetup {
  const Process& process;  ///< within the group
  std::chrono::milliseconds timeout;
  std::function<std::string(std::string)> from_rank_0;  ///< collective: what rank 0 gave, on all ranks
};

/// NCCL between the GPUs of a group; nccl_backend.cpp or no_nccl.cpp, as CMake chooses. Collective.
/// @throws UsageError  accel was built without NCCL.   @throws CommError  ranks do not reach each other.
c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const NcclSetup& setup);

}  // namespace accel::detail
