#pragma once

#include "comm/host_board.hpp"

#include <accel/collectives.hpp>

#include <cstdint>

namespace accel::detail {

/// Up to how many bytes of one rank an operation goes by way of the stage, on one host; beyond, MPI is faster. Measured
/// by `accel bench`, else what was measured on one machine.
std::int64_t stage_limit(Operation operation, const HostRanks& ranks);

}  // namespace accel::detail
