#pragma once

#include "comm/channel.hpp"
#include "comm/reduce_buffer.hpp"

#include <accel/collectives.hpp>

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <memory>
#include <vector>

namespace c10d {
class Backend;
}

namespace accel::detail {

/// Counts by operation and purpose; written from any thread.
class StatsTable {
 public:
  void count(Operation operation, Purpose purpose, Transport transport, std::uint64_t bytes) noexcept;
  /// A part of a counted call that another transport takes further.
  void carry(Transport transport, Purpose purpose, std::uint64_t bytes) noexcept;
  [[nodiscard]] CommStats snapshot() const;

 private:
  struct Cell {
    std::atomic<std::uint64_t> calls{0};
    std::atomic<std::uint64_t> bytes{0};
    void add(std::uint64_t count) noexcept;
  };
  std::array<std::array<Cell, CommStats::kPurposes>, CommStats::kOperations> table_{};
  std::array<std::array<Cell, CommStats::kPurposes>, CommStats::kTransports> carried_{};
};

/// What a Group refers to. One subclass a way to come by ranks: one process, an MPI communicator, a c10d process group.
class GroupImpl {
 public:
  GroupImpl(Process process, GroupOptions options);
  virtual ~GroupImpl() = default;
  GroupImpl(const GroupImpl&) = delete;
  GroupImpl& operator=(const GroupImpl&) = delete;

  /// The way of tensors on such devices; null where the group has none. A GPU channel is made at the first request,
  /// which is collective then.
  /// @throws UsageError  the device needs a part that this build lacks; says which.
  virtual Channel* channel(c10::DeviceType type) = 0;

  /// The c10d view of the same; null in a group of one and where there is no channel.
  virtual c10::intrusive_ptr<c10d::Backend> find_backend(c10::DeviceType type) = 0;

  /// Memory for gradients of CPU tensors that this group reduces fastest, with the contents of `flats`; those for which
  /// it knows no better stay as they are. Collective, with equal sizes and dtypes on all ranks.
  virtual std::vector<std::shared_ptr<ReduceBuffer>> reduce_buffers(const std::vector<at::Tensor>& flats,
                                                                    const Group& group);

  /// Collective. `call` names itself in errors.
  virtual std::shared_ptr<GroupImpl> split(int color, int key) = 0;
  virtual std::shared_ptr<GroupImpl> duplicate(const GroupOptions& options) = 0;

  [[nodiscard]] const Process& process() const { return process_; }
  [[nodiscard]] const GroupOptions& options() const { return options_; }
  [[nodiscard]] Site site() const { return {process_.rank, process_.size}; }
  [[nodiscard]] StatsTable& stats() { return *stats_; }

 protected:
  Process process_;
  GroupOptions options_;
  // Shared: a worker that is stuck in MPI outlives its group and still counts.
  std::shared_ptr<StatsTable> stats_ = std::make_shared<StatsTable>();
};

/// A group of one with the facts of `process`, whose rank and size become 0 and 1.
std::shared_ptr<GroupImpl> make_local_group(Process process, const GroupOptions& options);

/// All ranks of the job: mpi_group.cpp or no_mpi_group.cpp, as CMake chooses.
std::shared_ptr<GroupImpl> make_world_group();

}  // namespace accel::detail
