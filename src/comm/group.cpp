#include "comm/check.hpp"
#include "comm/group_impl.hpp"
#include "runtime/session.hpp"

#include <accel/collectives.hpp>
#include <accel/error.hpp>

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>

namespace accel {
namespace detail {

GroupImpl::GroupImpl(Process process, GroupOptions options) : process_(std::move(process)), options_(options) {
  if (options_.timeout <= std::chrono::milliseconds::zero())
    throw UsageError(message(site(), "Group",
                             cat("expected GroupOptions::timeout above zero, found ", options_.timeout.count(),
                                 " ms; leave it out for 30 minutes")));
  options_.timeout = std::min(options_.timeout, kLongestWait);
}

c10::Device control_device(const Group& group) {
  if (group.impl().channel(c10::DeviceType::CPU) != nullptr) return c10::DeviceType::CPU;
  return c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getDevice();
}

Site site_of(const Group& group) {
  return group.impl().site();
}

}  // namespace detail

Group::Group() : impl_(detail::make_local_group({}, {})) {}

Group::Group(std::shared_ptr<detail::GroupImpl> impl) : impl_(std::move(impl)) {
  if (!impl_)
    throw InternalError(detail::message(detail::job_site(), "Group", "expected an implementation, found none"));
}

int Group::rank() const {
  return impl_->process().rank;
}
int Group::size() const {
  return impl_->process().size;
}
const Process& Group::process() const {
  return impl_->process();
}
const GroupOptions& Group::options() const {
  return impl_->options();
}
Group Group::split(int color, int key) const {
  return Group(impl_->split(color, key));
}
Group Group::duplicate(const GroupOptions& options) const {
  return Group(impl_->duplicate(options));
}
CommStats Group::comm_stats() const {
  return impl_->stats().snapshot();
}

const Group& world() {
  // Never destroyed: what it holds is closed by the session, and static destructors may still ask for it.
  static const Group* const group = new Group(detail::make_world_group());
  return *group;
}

Work::Work() = default;
Work::Work(std::shared_ptr<detail::WorkImpl> impl) : impl_(std::move(impl)) {}

void Work::wait() {
  if (impl_) impl_->wait(std::chrono::milliseconds::zero());
}

bool Work::is_completed() const {
  return !impl_ || impl_->is_completed();
}

}  // namespace accel
