#include "comm/c10d_channel.hpp"
#include "comm/group_impl.hpp"
#include "comm/mpi_backend.hpp"
#include "comm/mpi_channel.hpp"
#include "comm/mpi_host.hpp"
#include "comm/nccl.hpp"
#include "comm/shared_buffer.hpp"
#include "runtime/mpi.hpp"
#include "runtime/session.hpp"

#include <accel/error.hpp>
#include <accel/interop.hpp>

#include <algorithm>
#include <mutex>
#include <utility>

namespace accel {
namespace detail {
namespace {

class MpiGroup final : public GroupImpl {
 public:
  /// `communicator` and what `host` holds are ours from here on.
  MpiGroup(MPI_Comm communicator, Process process, MpiHost host, const GroupOptions& options)
      : GroupImpl(std::move(process), options),
        host_(std::move(host)),
        channel_(std::make_shared<MpiChannel>(MpiEngine::make(communicator, site(), options_, stats_), host_.board)) {
    Session::get().set_exit_timeout(options.timeout);
    if (host_.across != MPI_COMM_NULL) channel_->engine().also_free(host_.across);
    // Weak: the engine lives until the session closes, and the memory need not.
    if (host_.board)
      channel_->engine().on_death([weak = std::weak_ptr(host_.board)](const std::string& why) {
        if (const auto board = weak.lock()) board->give_up(why);
      });
  }

  Channel* channel(c10::DeviceType type) override {
    if (type == c10::DeviceType::CPU) return channel_.get();
    if (type != c10::DeviceType::CUDA) return nullptr;
    const std::lock_guard lock(mutex_);
    if (!gpu_channel_) {
      gpu_backend_ = make_nccl_backend(
          {process_, options_.timeout, [this](std::string text) { return from_rank_0(std::move(text)); }});
      gpu_channel_ = make_c10d_channel(gpu_backend_, site(), stats_, options_);
    }
    return gpu_channel_.get();
  }

  c10::intrusive_ptr<c10d::Backend> find_backend(c10::DeviceType type) override {
    const std::lock_guard lock(mutex_);
    if (type == c10::DeviceType::CUDA) return gpu_backend_;
    if (type != c10::DeviceType::CPU) return {};
    if (!cpu_backend_) cpu_backend_ = make_mpi_backend(channel_, options_);
    return cpu_backend_;
  }

  std::vector<std::shared_ptr<ReduceBuffer>> reduce_buffers(const std::vector<at::Tensor>& flats,
                                                            const Group& group) override {
    const auto on_cpu = [](const at::Tensor& flat) { return flat.device().is_cpu(); };
    if (host_.board && !flats.empty() && std::all_of(flats.begin(), flats.end(), on_cpu)) {
      auto buffers = shared_buffers(flats, group, host_, channel_->shared_engine(), helper_);
      if (!buffers.empty()) return buffers;
    }
    return GroupImpl::reduce_buffers(flats, group);
  }

  std::shared_ptr<GroupImpl> split(int color, int key) override {
    return derive("split", options_, [color, key](MPI_Comm parent) {
      MPI_Comm part = MPI_COMM_NULL;
      require_mpi(MPI_Comm_split(parent, color < 0 ? MPI_UNDEFINED : color, key, &part), "MPI_Comm_split");
      if (part != MPI_COMM_NULL) return_errors(part);
      return part;
    });
  }

  std::shared_ptr<GroupImpl> duplicate(const GroupOptions& options) override {
    return derive("duplicate", options, [](MPI_Comm parent) { return duplicate_communicator(parent); });
  }

 private:
  // New communicators are made in the order of the group's calls, by the worker where the caller may have to leave.
  template <class Make>
  std::shared_ptr<GroupImpl> derive(const char* name, const GroupOptions& options, Make make) {
    struct Made {
      MPI_Comm communicator = MPI_COMM_NULL;
      Process facts;
      MpiHost host;
    };
    const auto made = std::make_shared<Made>();
    MpiCall call;
    call.name = name;
    channel_->engine().call(call, false, [made, make, timeout = options.timeout](const Ring& ring) {
      made->communicator = make(ring.communicator);
      if (made->communicator == MPI_COMM_NULL) return;
      made->facts = facts_of(made->communicator);
      made->host = join_host(made->communicator, timeout);
    });
    if (made->communicator == MPI_COMM_NULL) return make_local_group(process_, options);
    return std::make_shared<MpiGroup>(made->communicator, std::move(made->facts), std::move(made->host), options);
  }

  std::string from_rank_0(std::string text) {
    const CallOptions control{Purpose::kControl, false, {}};
    at::Tensor length = at::empty({1}, at::kLong);
    *length.mutable_data_ptr<std::int64_t>() = static_cast<std::int64_t>(text.size());
    channel_->broadcast(length, 0, control);
    at::Tensor bytes = at::empty({length.item<std::int64_t>()}, at::kByte);
    if (process_.rank == 0) std::copy(text.begin(), text.end(), static_cast<char*>(bytes.mutable_data_ptr()));
    channel_->broadcast(bytes, 0, control);
    return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<std::size_t>(bytes.numel())};
  }

  const MpiHost host_;
  const std::shared_ptr<MpiChannel> channel_;
  const std::shared_ptr<ReduceHelper> helper_ = std::make_shared<ReduceHelper>();
  std::mutex mutex_;
  c10::intrusive_ptr<c10d::Backend> cpu_backend_;
  c10::intrusive_ptr<c10d::Backend> gpu_backend_;
  std::unique_ptr<Channel> gpu_channel_;
};

std::shared_ptr<GroupImpl> group_over(MPI_Comm communicator, const GroupOptions& options) {
  int size = 0;
  check_mpi(MPI_Comm_size(communicator, &size), "MPI_Comm_size");
  if (size == 1) return make_local_group(Session::get().process(), options);
  const MPI_Comm ours = duplicate_communicator(communicator);
  return std::make_shared<MpiGroup>(ours, facts_of(ours), join_host(ours, options.timeout), options);
}

[[noreturn]] void refuse(const std::string& text) {
  throw UsageError(message(job_site(), "group_from_mpi", text));
}

}  // namespace

std::shared_ptr<GroupImpl> make_world_group() {
  const Session& session = Session::get();
  if (!session.process().has_mpi) return make_local_group(session.process(), {});
  return group_over(MPI_COMM_WORLD, {});
}

}  // namespace detail

namespace interop {

Group group_from_mpi(MPI_Comm communicator, const GroupOptions& options) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0) detail::refuse("expected MPI to be initialised; call MPI_Init_thread first");
  if (!detail::Session::get().usable()) detail::refuse("expected MPI to be usable, found it finalised");
  if (communicator == MPI_COMM_NULL)
    detail::refuse("expected a communicator, found MPI_COMM_NULL; only its members make the call");
  int inter = 0;
  detail::check_mpi(MPI_Comm_test_inter(communicator, &inter), "MPI_Comm_test_inter");
  if (inter != 0) detail::refuse("expected an intra-communicator, found an inter-communicator; merge it first");
  return Group(detail::group_over(communicator, options));
}

}  // namespace interop
}  // namespace accel
