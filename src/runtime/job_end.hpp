#pragma once

#include "runtime/mpi.hpp"

namespace accel::detail {

/// Takes over how this process ends, in a job whose MPI accel initialised:
/// - an exception that nobody catches is printed and ends all ranks;
/// - so does a status other than 0 from main or exit(), with that status;
/// - status 0 waits for the other ranks up to Session::exit_timeout, names those that did not come, then finalises.
/// `world` is a duplicate that nothing else uses. A forked child that exits is left alone.
void own_the_end(MPI_Comm world);

}  // namespace accel::detail
