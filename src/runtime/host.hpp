#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace accel::detail {

[[nodiscard]] std::string host_name();

/// Logical processors that this process may run on (its affinity mask).
[[nodiscard]] int usable_cores();

/// Those processors, a bit each; more than it has room for are left out.
using ProcessorMask = std::array<std::uint64_t, 16>;
[[nodiscard]] ProcessorMask usable_processors();

/// Cores beneath them: hardware threads of one core count once. What mpirun calls a slot.
[[nodiscard]] int physical_cores();

/// Main memory of the host in bytes; 0 if unknown.
[[nodiscard]] std::uint64_t memory_bytes();

}  // namespace accel::detail
