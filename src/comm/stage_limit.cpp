#include "comm/stage_limit.hpp"

#include <cstdlib>
#include <limits>

namespace accel::detail {

std::int64_t stage_limit(Operation, const HostRanks&) {
  static const std::int64_t limit =
      std::getenv("ACCEL_STAGE") ? std::atoll(std::getenv("ACCEL_STAGE")) : std::numeric_limits<std::int64_t>::max();
  return limit;
}

}  // namespace accel::detail
