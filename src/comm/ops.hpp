#pragma once

#include "core/message.hpp"

#include <accel/collectives.hpp>
#include <accel/source_location.hpp>

#include <string>
#include <vector>

namespace accel::detail {

/// What the free functions of collectives.hpp do, with the purpose that comm_stats counts and a factor that is applied
/// to the result in the same pass over memory (floating dtypes; 1 leaves the result's bits alone).
struct ReduceSpec {
  ReduceOp op = ReduceOp::kSum;
  double factor = 1.0;
  Purpose purpose = Purpose::kUser;
};

/// Synchronous: runs in place on the calling thread where that is allowed (idle queue).
void all_reduce(at::Tensor& tensor, const ReduceSpec& spec, const Group& group, const SourceLocation& where);

/// Asynchronous: on the group's worker, in order. Where the MPI thread level allows no worker, it is done on return.
[[nodiscard]] Work all_reduce_async(at::Tensor& tensor, const ReduceSpec& spec, const Group& group,
                                    const SourceLocation& where);

void broadcast(at::Tensor& tensor, int root, Purpose purpose, const Group& group, const SourceLocation& where);

/// Equal shapes; `output` is [size, ...].
void all_gather_into(at::Tensor& output, const at::Tensor& tensor, Purpose purpose, const Group& group,
                     const SourceLocation& where);

std::vector<at::Tensor> all_gather(const at::Tensor& tensor, Purpose purpose, const Group& group,
                                   const SourceLocation& where);

std::vector<at::Tensor> gather(const at::Tensor& tensor, int root, Purpose purpose, const Group& group,
                               const SourceLocation& where);

std::vector<at::Tensor> all_to_all(const std::vector<at::Tensor>& inputs, Purpose purpose, const Group& group,
                                   const SourceLocation& where);

/// One text of each rank, in order of rank. Collective.
std::vector<std::string> all_gather_text(const std::string& text, Purpose purpose, const Group& group,
                                         const SourceLocation& where);

/// Where control messages (headers, flags) of this group live: the CPU where the group has a CPU backend (or is a group
/// of one), else the current CUDA device.
c10::Device control_device(const Group& group);

/// The rank and size that error texts of this group begin with.
Site site_of(const Group& group);

}  // namespace accel::detail
