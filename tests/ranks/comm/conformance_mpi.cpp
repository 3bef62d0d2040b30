// The suite over MPI: the group of the job itself, and accel's c10d backend as another program would use it, wrapped in
// a process group.
#include "conformance.hpp"

#include <accel/interop.hpp>

namespace accel::test {
namespace {

Group wrapped(const Group& group) {
  if (group.size() == 1) return group;
  auto process_group = c10::make_intrusive<c10d::ProcessGroup>(group.rank(), group.size());
  process_group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM,
                            interop::backend_of(group, c10::DeviceType::CPU));
  return interop::group_from_c10d(process_group);
}

}  // namespace

const std::vector<Subject>& subjects() {
  static const std::vector<Subject> all{
      {"world", world()},
      {"MPI, errors thrown: every call on the worker", world().duplicate({.on_failure = OnFailure::kThrow})},
      {"a process group around the backend", wrapped(world())},
  };
  return all;
}

}  // namespace accel::test
