#pragma once

#include "accel/launch_plan.hpp"

namespace accel::tool {

/// Runs the program on its ranks, passes on signals, and names the rank that ends the job. @return its exit code
int launch(const LaunchOptions& options, bool dry_run);

}  // namespace accel::tool
