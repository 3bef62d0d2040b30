#pragma once

#include "comm/channel.hpp"

#include <functional>

namespace accel::detail {

/// `pending` and then `last`, which runs once, on whichever thread first learns that `pending` is complete. Null
/// `pending`: `last` runs at once and the result is null.
Channel::Pending followed_by(Channel::Pending pending, std::function<void()> last);

}  // namespace accel::detail
