#pragma once

#include <accel/collectives.hpp>

#include <c10/util/intrusive_ptr.h>

#include <memory>

namespace c10d {
class Backend;
}

namespace accel::detail {

class MpiChannel;

/// The c10d backend over a channel: what other code that speaks c10d (a ProcessGroup, a Reducer) may be given. Its
/// calls take their turn among the group's own, and are counted as kUser.
c10::intrusive_ptr<c10d::Backend> make_mpi_backend(std::shared_ptr<MpiChannel> channel, const GroupOptions& options);

}  // namespace accel::detail
