#pragma once

#include "comm/ops.hpp"

#include <accel/source_location.hpp>

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

namespace accel::detail {

/// What a Work refers to.
class WorkImpl {
 public:
  virtual ~WorkImpl() = default;

  /// `timeout` of zero: the group's own. Throws the same error again when called again.
  virtual void wait(std::chrono::milliseconds timeout) = 0;
  virtual bool is_completed() = 0;

  /// Calls `done` with the failure, or null, once there is a result: at once if there is one already. Where nothing
  /// works in the background, `wait` and `is_completed` make the call.
  virtual void on_done(std::function<void(std::exception_ptr)> done) = 0;
};

/// How a call is made, beside its tensors.
struct CallOptions {
  Purpose purpose = Purpose::kUser;
  bool async = false;
  SourceLocation where;
};

/// How many elements this rank sends to each rank, and receives from each, in order of rank.
struct Splits {
  static constexpr std::int64_t kUnknown = -1;

  std::vector<std::int64_t> sent{};
  std::vector<std::int64_t> received{};
  bool equal = false;               ///< one number between any two ranks, which all ranks know
  std::int64_t longest = kUnknown;  ///< the largest number between any two ranks, where it is known
};

/// Moves the tensors of one device type between the ranks of one group. Arguments have been checked (check.hpp); an
/// implementation handles non-contiguous tensors and tensors without elements, counts calls and bytes, and is called
/// in the same order on all ranks.
///
/// All return null if the operation is complete on return, which a synchronous call always is.
class Channel {
 public:
  using Pending = std::shared_ptr<WorkImpl>;

  virtual ~Channel() = default;

  virtual Pending all_reduce(const at::Tensor& tensor, const ReduceSpec& spec, const CallOptions& call) = 0;
  virtual Pending broadcast(const at::Tensor& tensor, int root, const CallOptions& call) = 0;

  /// `output` has size x numel(input) elements.
  virtual Pending all_gather_into(const at::Tensor& output, const at::Tensor& input, const CallOptions& call) = 0;

  /// Dimension 0 of rank r is `rows[r]`; `output` has as many rows as all together, contiguous.
  virtual Pending all_gather_rows(const at::Tensor& output, const at::Tensor& input,
                                  const std::vector<std::int64_t>& rows, const CallOptions& call) = 0;

  virtual Pending reduce_scatter(const at::Tensor& output, const at::Tensor& input, const ReduceSpec& spec,
                                 const CallOptions& call) = 0;

  /// The result is in `tensor` of rank `root`; those of the others keep what is in them.
  virtual Pending reduce(const at::Tensor& tensor, int root, const ReduceSpec& spec, const CallOptions& call) = 0;

  /// Rank r gives `counts[r]` elements; they follow one another in `output`, which is contiguous and read on `root`
  /// only. Bytes are counted as those of `input`.
  virtual Pending gather(const at::Tensor& output, const at::Tensor& input, const std::vector<std::int64_t>& counts,
                         int root, const CallOptions& call) = 0;

  /// `input`, read on `root` only, has size x numel(output) elements. Bytes are those that a rank hands over: all of
  /// `input` on `root`, its own slice on the others. On `root`, `output` may be its slice of `input`.
  virtual Pending scatter(const at::Tensor& output, const at::Tensor& input, int root, const CallOptions& call) = 0;

  /// What goes to rank r, or comes from it, follows what goes to or comes from the ranks before. Bytes are counted as
  /// those of `input`.
  virtual Pending all_to_all(const at::Tensor& output, const at::Tensor& input, const Splits& splits,
                             const CallOptions& call) = 0;

  virtual Pending barrier(const CallOptions& call) = 0;
  virtual Pending send(const at::Tensor& tensor, int to, int tag, const CallOptions& call) = 0;
  virtual Pending recv(const at::Tensor& tensor, int from, int tag, const CallOptions& call) = 0;
};

/// A tensor as one block of memory: itself where it is one, else a copy that `copy_back` brings home.
class Block {
 public:
  enum class Content { kKeep, kOverwritten };  ///< overwritten: what is in it now need not be copied

  Block(const at::Tensor& tensor, Content content);

  [[nodiscard]] void* data() const { return block_.mutable_data_ptr(); }
  [[nodiscard]] const at::Tensor& tensor() const { return block_; }
  void copy_back() const;

 private:
  at::Tensor target_;  ///< undefined where the tensor is its own block
  at::Tensor block_;
};

/// Payload of a tensor.
inline std::int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.numel() * static_cast<std::int64_t>(tensor.element_size());
}

}  // namespace accel::detail
