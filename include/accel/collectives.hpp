#pragma once

#include <accel/export.hpp>
#include <accel/process.hpp>
#include <accel/source_location.hpp>

#include <ATen/core/Tensor.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

namespace accel {

namespace detail {
class GroupImpl;
class WorkImpl;
}  // namespace detail

/// How values of the ranks become one. kAvg divides the sum by the number of ranks (floating dtypes only). Of truth
/// values kSum and kMax are "or", kProduct and kMin are "and".
enum class ReduceOp { kSum, kAvg, kMin, kMax, kProduct };

/// What a transfer was for.
enum class Purpose { kGradient, kControl, kBuffer, kUser };

/// What a transfer was.
enum class Operation {
  kAllReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kBarrier,
  kSend,
  kReceive,
  kGather,
  kScatter,
  kReduce,
  kAllToAll
};

/// What carried a transfer: memory that the ranks of a host share, MPI, NCCL, or another c10d backend.
enum class Transport { kShared, kMpi, kNccl, kOther };

/// Calls and payload bytes, counted where they are handed to the transport.
struct OperationStats {
  std::uint64_t calls = 0;
  std::uint64_t bytes = 0;  ///< payload of this rank: numel x itemsize of the tensor it gave
};

/// Calls and bytes by operation and purpose since the group was made; subtract two to get those of a stretch.
struct ACCEL_API CommStats {
  static constexpr std::size_t kOperations = 11;
  static constexpr std::size_t kPurposes = 4;
  static constexpr std::size_t kTransports = 4;
  std::array<std::array<OperationStats, kPurposes>, kOperations> table{};
  /// The same calls by what carried them. On several hosts a gradient is in two rows: whole in that of the memory it is
  /// summed in on its host, and with this rank's slice in that of MPI, which takes it from host to host.
  std::array<std::array<OperationStats, kPurposes>, kTransports> carried{};

  [[nodiscard]] OperationStats of(Operation operation, Purpose purpose) const;
  [[nodiscard]] OperationStats of(Purpose purpose) const;  ///< summed over operations
  [[nodiscard]] OperationStats of(Transport transport, Purpose purpose) const;
  [[nodiscard]] OperationStats of(Transport transport) const;  ///< summed over purposes
  [[nodiscard]] CommStats operator-(const CommStats& earlier) const;
};

/// How a group behaves when peers are slow or gone. Under kAbortJob a call that outlives the time-out ends the job.
/// Under kThrow it is left with a TimeoutError. Calls that go by MPI run on the group's worker thread for it (6-7 us
/// more); where MPI allows no worker, such a call first waits for its peers and blocks once they have come.
struct GroupOptions {
  std::chrono::milliseconds timeout = std::chrono::minutes(30);  ///< longest wait for peers in one call
  OnFailure on_failure = OnFailure::kDefault;
};

/// Some ranks of the job that communicate with each other. A value: copies refer to the same group.
class ACCEL_API Group {
 public:
  /// This process alone; collectives of a group of one return their input.
  Group();

  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;

  /// The facts of this process within the group: local rank and hosts count the group's ranks only.
  [[nodiscard]] const Process& process() const;

  [[nodiscard]] const GroupOptions& options() const;

  /// The ranks that give the same `color`, ordered by `key`, then by rank. A negative color takes part and gets a
  /// group of one. Collective: every rank of this group calls it.
  [[nodiscard]] Group split(int color, int key = 0) const;

  /// The same ranks with communicators and options of their own. Collective.
  [[nodiscard]] Group duplicate(const GroupOptions& options) const;

  [[nodiscard]] CommStats comm_stats() const;

  explicit Group(std::shared_ptr<detail::GroupImpl> impl);
  [[nodiscard]] detail::GroupImpl& impl() const { return *impl_; }

 private:
  std::shared_ptr<detail::GroupImpl> impl_;
};

/// All ranks of the job. Collective at its first call.
/// @throws CommError  MPI cannot be initialised.
ACCEL_API const Group& world();

/// An operation under way. Keep the tensors alive and untouched until `wait` returns.
class [[nodiscard("an operation must be waited for: call wait()")]] ACCEL_API Work {
 public:
  Work();  ///< of an operation that is already complete
  explicit Work(std::shared_ptr<detail::WorkImpl> impl);

  /// Blocks until the result is there (CUDA: until the current stream is ordered after it).
  /// @throws TimeoutError  a peer did not answer in time.   @throws CommError  a peer is lost.
  void wait();
  [[nodiscard]] bool is_completed() const;

 private:
  std::shared_ptr<detail::WorkImpl> impl_;
};

/// Combines `tensor` over all ranks, in place.
///
/// Collective: every rank of `group` calls it, in the same order, with equal shapes and dtypes.
/// @param tensor  any shape, contiguous or not, zero elements allowed; float64/32, float16, bfloat16, int8..int64,
///                uint8, bool, complex128/64 (kSum and kAvg); on CPU or CUDA. 16-bit floats are summed in float32
///                and rounded once (CPU; NCCL rounds on the way).
/// @throws UsageError   dtype or layout not supported.   @throws CommError  a peer is lost.
ACCEL_API void all_reduce(at::Tensor& tensor, ReduceOp op = ReduceOp::kSum, const Group& group = world(),
                          SourceLocation where = SourceLocation::current());
ACCEL_API Work all_reduce_async(at::Tensor& tensor, ReduceOp op = ReduceOp::kSum, const Group& group = world(),
                                SourceLocation where = SourceLocation::current());

/// Copies `tensor` of rank `root` to all ranks, in place. Collective; equal shapes and dtypes.
ACCEL_API void broadcast(at::Tensor& tensor, int root = 0, const Group& group = world(),
                         SourceLocation where = SourceLocation::current());
ACCEL_API Work broadcast_async(at::Tensor& tensor, int root = 0, const Group& group = world(),
                               SourceLocation where = SourceLocation::current());

/// The tensors of all ranks, in order of rank. Shapes may differ in dimension 0 (ragged); dtypes and the other
/// dimensions are equal, which is checked. They are views of one buffer, without a graph. Collective.
/// @throws UsageError  on all ranks, if dtypes or trailing shapes differ; names the ranks.
ACCEL_API std::vector<at::Tensor> all_gather(const at::Tensor& tensor, const Group& group = world(),
                                             SourceLocation where = SourceLocation::current());

/// As all_gather, into `output` of shape [size, ...shape of tensor]: equal shapes on all ranks, nothing is checked.
ACCEL_API void all_gather_into(at::Tensor& output, const at::Tensor& tensor, const Group& group = world(),
                               SourceLocation where = SourceLocation::current());
ACCEL_API Work all_gather_into_async(at::Tensor& output, const at::Tensor& tensor, const Group& group = world(),
                                     SourceLocation where = SourceLocation::current());

/// Combines `input` ([size x n, ...]) over all ranks and leaves slice `rank` ([n, ...]) in `output`. Collective.
ACCEL_API void reduce_scatter(at::Tensor& output, const at::Tensor& input, ReduceOp op = ReduceOp::kSum,
                              const Group& group = world(), SourceLocation where = SourceLocation::current());
ACCEL_API Work reduce_scatter_async(at::Tensor& output, const at::Tensor& input, ReduceOp op = ReduceOp::kSum,
                                    const Group& group = world(), SourceLocation where = SourceLocation::current());

/// Combines `tensor` over all ranks into that of rank `root`, in place; those of the others stay as they are.
/// Collective; equal shapes and dtypes.
/// @throws UsageError  as all_reduce; `root` is no rank.
ACCEL_API void reduce(at::Tensor& tensor, int root = 0, ReduceOp op = ReduceOp::kSum, const Group& group = world(),
                      SourceLocation where = SourceLocation::current());
ACCEL_API Work reduce_async(at::Tensor& tensor, int root = 0, ReduceOp op = ReduceOp::kSum,
                            const Group& group = world(), SourceLocation where = SourceLocation::current());

/// The tensors of all ranks, in order of rank, on rank `root`; an empty vector on the others. Shapes may differ in
/// dimension 0, as with all_gather. To have them on every rank: all_gather, or `Accelerator::gather`. Collective.
/// @throws UsageError  on all ranks, if dtypes or trailing shapes differ; names the ranks.
[[nodiscard]] ACCEL_API std::vector<at::Tensor> gather(const at::Tensor& tensor, int root = 0,
                                                       const Group& group = world(),
                                                       SourceLocation where = SourceLocation::current());

/// Leaves slice `rank` ([n, ...]) of the `input` of rank `root` ([size x n, ...]) in `output`. Collective.
/// @param input  read on `root` only; give an undefined tensor on the others
/// @throws UsageError  the shapes do not fit (on `root`).
ACCEL_API void scatter(at::Tensor& output, const at::Tensor& input, int root = 0, const Group& group = world(),
                       SourceLocation where = SourceLocation::current());
ACCEL_API Work scatter_async(at::Tensor& output, const at::Tensor& input, int root = 0, const Group& group = world(),
                             SourceLocation where = SourceLocation::current());

/// Sends slice r ([n, ...]) of `input` ([size x n, ...]) to rank r; slice r of `output`, of equal shape, is what rank r
/// sent to this one. Collective; equal shapes and dtypes on all ranks.
ACCEL_API void all_to_all(at::Tensor& output, const at::Tensor& input, const Group& group = world(),
                          SourceLocation where = SourceLocation::current());
ACCEL_API Work all_to_all_async(at::Tensor& output, const at::Tensor& input, const Group& group = world(),
                                SourceLocation where = SourceLocation::current());

/// As all_to_all, of tensors whose shapes may differ in dimension 0: `inputs[r]` goes to rank r, and element r of the
/// result came from rank r. They are views of one buffer, without a graph. Collective.
/// @param inputs  one for each rank, of equal dtype, device and trailing shape
/// @throws UsageError  on all ranks, if those of any two ranks do not fit; names the ranks.
[[nodiscard]] ACCEL_API std::vector<at::Tensor> all_to_all(const std::vector<at::Tensor>& inputs,
                                                           const Group& group = world(),
                                                           SourceLocation where = SourceLocation::current());

/// Returns when every rank of `group` has called it. Collective.
ACCEL_API void barrier(const Group& group = world(), SourceLocation where = SourceLocation::current());
ACCEL_API Work barrier_async(const Group& group = world(), SourceLocation where = SourceLocation::current());

/// Sends to or receives from one rank; matched by `tag`, outside the order of collectives. Only the two ranks call.
ACCEL_API void send(const at::Tensor& tensor, int to, const Group& group = world(), int tag = 0,
                    SourceLocation where = SourceLocation::current());
ACCEL_API Work send_async(const at::Tensor& tensor, int to, const Group& group = world(), int tag = 0,
                          SourceLocation where = SourceLocation::current());
ACCEL_API void recv(at::Tensor& tensor, int from, const Group& group = world(), int tag = 0,
                    SourceLocation where = SourceLocation::current());
ACCEL_API Work recv_async(at::Tensor& tensor, int from, const Group& group = world(), int tag = 0,
                          SourceLocation where = SourceLocation::current());

}  // namespace accel
