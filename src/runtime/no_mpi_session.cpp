#include "core/log.hpp"
#include "runtime/host.hpp"
#include "runtime/launcher.hpp"
#include "runtime/session.hpp"

#include <cstdlib>

namespace accel::detail {

Session::Session() {
  process_.host = host_name();
  const int ranks = launched_size().value_or(1);
  if (ranks > 1)
    log(LogLevel::kWarning, job_site(), "process",
        cat("expected an accel built with MPI to run ", ranks, " ranks, found one built without: each process is a ",
            "group of one; build with -DACCEL_WITH_MPI=ON"));
}

std::string mpi_library() {
  return "none (built with ACCEL_WITH_MPI=OFF)";
}

void end_all_ranks(int code) noexcept {
  std::_Exit(code);
}

}  // namespace accel::detail
