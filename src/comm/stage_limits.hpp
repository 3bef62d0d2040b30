#pragma once

#include <accel/collectives.hpp>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

namespace accel::detail {

/// Up to how many bytes of one rank an operation goes by way of the stage that the ranks of one host share; beyond, MPI
/// is faster.
struct StageLimits {
  static constexpr std::int64_t kAlways = std::numeric_limits<std::int64_t>::max();

  std::int64_t all_reduce = kAlways;
  std::int64_t broadcast = kAlways;
  std::int64_t all_gather = kAlways;
  std::int64_t reduce_scatter = kAlways;

  [[nodiscard]] std::int64_t of(Operation operation) const;
};

/// One size, both ways, in any unit of time.
struct StageTiming {
  std::int64_t bytes = 0;
  double stage = 0.0;
  double mpi = 0.0;
};

/// The limit under which these calls, one of each size, gain most: one that is slow by chance does not decide.
/// @param timings  by rising size
[[nodiscard]] std::int64_t best_limit(const std::vector<StageTiming>& timings);

/// Where measured limits are kept: ACCEL_STAGE_LIMITS, else accel/stage_limits.json in the user's configuration folder.
[[nodiscard]] std::filesystem::path stage_limits_file();

/// What was measured on this host with so many ranks, or with the nearest number; defaults where nothing was. A file
/// that cannot be understood is reported once and counts for nothing.
[[nodiscard]] StageLimits read_stage_limits(const std::string& host, int ranks);

/// Adds to the file. @throws std::runtime_error  it cannot be written; names it.
void save_stage_limits(const std::string& host, int ranks, const StageLimits& limits);

}  // namespace accel::detail
