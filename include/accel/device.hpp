#pragma once

#include <accel/export.hpp>
#include <accel/process.hpp>

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>

namespace accel {

/// The device of a process: CUDA device `local_rank mod visible GPUs` where CUDA can be used, else the CPU.
/// A `requested` device is checked instead of chosen; a CUDA device without an index gets the one above.
/// Local: no communication.
/// @throws UsageError  CUDA was asked for and there is none (says what is missing), or the index is out of range.
ACCEL_API c10::Device device_for(const Process& process, std::optional<c10::Device> requested = std::nullopt);

struct SeedOptions {
  bool device_specific = false;  ///< add the rank, so that dropout and augmentation differ between ranks
  bool deterministic = false;    ///< also ask LibTorch for deterministic algorithms
};

/// Seeds the CPU generator and those of all visible CUDA devices. Local: every rank calls it for itself. Call it with
/// `device_specific` after `prepare`, when weights are equal already.
ACCEL_API void set_seed(std::uint64_t seed, const SeedOptions& options = {});

}  // namespace accel
