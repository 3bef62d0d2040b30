#include "comm/c10d_channel.hpp"
#include "comm/group_impl.hpp"
#include "core/env.hpp"
#include "device/libtorch_compat.hpp"
#include "runtime/session.hpp"

#include <accel/error.hpp>
#include <accel/interop.hpp>

#include <map>
#include <mutex>
#include <utility>

namespace accel {
namespace detail {
namespace {

// Local facts come from MPI where the group is the job, else from a launcher; a process group does not know them.
Process facts_of_members(int rank, int size) {
  Process facts = Session::get().process();
  if (facts.rank == rank && facts.size == size) return facts;
  facts.rank = rank;
  facts.size = size;
  facts.local_rank = static_cast<int>(env_integer("LOCAL_RANK").value_or(rank));
  facts.local_size = static_cast<int>(env_integer("LOCAL_WORLD_SIZE").value_or(size));
  facts.hosts = facts.local_size > 0 ? (size + facts.local_size - 1) / facts.local_size : 1;
  facts.host_index = facts.local_size > 0 ? rank / facts.local_size : 0;
  return facts;
}

class C10dGroup final : public GroupImpl {
 public:
  C10dGroup(c10::intrusive_ptr<c10d::ProcessGroup> process_group, Process process, const GroupOptions& options)
      : GroupImpl(std::move(process), options), process_group_(std::move(process_group)) {}

  Channel* channel(c10::DeviceType type) override {
    const std::lock_guard lock(mutex_);
    const auto known = channels_.find(type);
    if (known != channels_.end()) return known->second.get();
    auto backend = find_backend(type);
    if (!backend) return nullptr;
    auto& made = channels_[type];
    made = make_c10d_channel(std::move(backend), site(), stats_, options_);
    return made.get();
  }

  c10::intrusive_ptr<c10d::Backend> find_backend(c10::DeviceType type) override {
    if (!has_backend(*process_group_, type)) return {};
    return process_group_->getBackend(type);
  }

  std::shared_ptr<GroupImpl> split(int, int) override {
    throw UsageError(message(site(), "split",
                             "expected a group that accel made, found one over a process group of yours; split that "
                             "and give its parts to group_from_c10d"));
  }

  std::shared_ptr<GroupImpl> duplicate(const GroupOptions& options) override {
    return std::make_shared<C10dGroup>(process_group_, process_, options);
  }

 private:
  const c10::intrusive_ptr<c10d::ProcessGroup> process_group_;
  std::mutex mutex_;
  std::map<c10::DeviceType, std::unique_ptr<Channel>> channels_;
};

}  // namespace
}  // namespace detail

namespace interop {

Group group_from_c10d(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, const GroupOptions& options) {
  if (!process_group)
    throw UsageError(detail::message(detail::job_site(), "group_from_c10d",
                                     "expected a process group, found null; make one with c10d first"));
  Process facts = detail::facts_of_members(process_group->getRank(), process_group->getSize());
  if (facts.size == 1) return Group(detail::make_local_group(std::move(facts), options));
  return Group(std::make_shared<detail::C10dGroup>(process_group, std::move(facts), options));
}

c10::intrusive_ptr<c10d::Backend> backend_of(const Group& group, c10::DeviceType type) {
  return group.impl().find_backend(type);
}

}  // namespace interop
}  // namespace accel
