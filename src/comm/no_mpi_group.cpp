#include "comm/group_impl.hpp"
#include "runtime/session.hpp"

#include <accel/error.hpp>
#include <accel/interop.hpp>

namespace accel {
namespace detail {

std::shared_ptr<GroupImpl> make_world_group() {
  return make_local_group(Session::get().process(), {});
}

}  // namespace detail

#ifdef ACCEL_INTEROP_HAS_MPI
namespace interop {

Group group_from_mpi(MPI_Comm, const GroupOptions&) {
  throw UsageError(detail::message(detail::job_site(), "group_from_mpi",
                                   "expected a build with MPI, found one without; configure with ACCEL_WITH_MPI=ON"));
}

}  // namespace interop
#endif

}  // namespace accel
