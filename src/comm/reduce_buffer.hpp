#pragma once

#include "comm/ops.hpp"

#include <accel/source_location.hpp>

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>
#include <vector>

namespace accel::detail {

/// A flat buffer of gradients that is reduced again and again. Collective, in the same order on all ranks, as the
/// collectives of ops.hpp; several may be under way.
class ReduceBuffer {
 public:
  explicit ReduceBuffer(at::Tensor flat) : flat_(std::move(flat)) {}
  virtual ~ReduceBuffer() = default;
  ReduceBuffer(const ReduceBuffer&) = delete;
  ReduceBuffer& operator=(const ReduceBuffer&) = delete;

  [[nodiscard]] const at::Tensor& flat() const { return flat_; }

  /// The buffer is filled and may be reduced from now on, in the background; nobody touches it until `wait` returns.
  virtual void start(const ReduceSpec& spec, const Group& group, const SourceLocation& where) = 0;
  /// @throws TimeoutError, CommError  as the collectives
  virtual void wait() = 0;
  /// Both in one, for a buffer that nothing else is under way with.
  virtual void run(const ReduceSpec& spec, const Group& group, const SourceLocation& where) = 0;

 private:
  const at::Tensor flat_;
};

/// Buffers with the contents of `flats`, in memory that the group reduces fastest (the ranks of one host share it), or
/// over these tensors themselves. Collective, with equal sizes and dtypes on all ranks.
std::vector<std::shared_ptr<ReduceBuffer>> reduce_buffers(const std::vector<at::Tensor>& flats, const Group& group);

}  // namespace accel::detail
