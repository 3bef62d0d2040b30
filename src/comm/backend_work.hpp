#pragma once

#include "comm/channel.hpp"

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace accel::detail {

/// A pending operation of a channel as c10d sees it; `pending` null: complete.
c10::intrusive_ptr<c10d::Work> backend_work(Channel::Pending pending, int rank, c10d::OpType type,
                                            std::vector<at::Tensor> results);

}  // namespace accel::detail
