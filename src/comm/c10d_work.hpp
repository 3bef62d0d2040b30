#pragma once

#include "comm/channel.hpp"

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <exception>

namespace accel::detail {

/// Texts differ between backends; the kind of error is all that callers branch on.
[[noreturn]] void rethrow_as_comm_error(Site site, const char* call, const std::exception& error);

/// An operation of a c10d backend as the group sees it.
Channel::Pending c10d_work(c10::intrusive_ptr<c10d::Work> work, Site site, const char* call);

}  // namespace accel::detail
