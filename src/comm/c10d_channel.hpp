#pragma once

#include "comm/channel.hpp"
#include "comm/group_impl.hpp"

#include <memory>
#include <string>

namespace accel::detail {

/// Tensors over a c10d backend (NCCL, gloo, one of the caller's). What a backend lacks is made up for here: averages,
/// factors, non-contiguous tensors, gathers of unequal lengths.
std::unique_ptr<Channel> make_c10d_channel(c10::intrusive_ptr<c10d::Backend> backend, Site site,
                                           std::shared_ptr<StatsTable> stats, const GroupOptions& options);

}  // namespace accel::detail
