#pragma once

#include "support/torch_doctest.hpp"

#include <accel/collectives.hpp>

#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <vector>

namespace accel::test {

/// One way of communicating that has to pass the suite.
struct Subject {
  std::string name;
  Group group;
  at::Device device = at::kCPU;
  bool one_rounding = true;      ///< 16-bit floats are combined in float32
  bool checks_arguments = true;  ///< refuses what has no meaning with UsageError
};

/// What this program tests; collective. Defined by one file a program.
const std::vector<Subject>& subjects();

inline const std::vector<at::ScalarType> kDtypes{at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong,
                                                 at::kInt,    at::kShort, at::kChar, at::kByte,     at::kBool};

enum class Layout { kContiguous, kTransposed, kStrided };
inline const std::vector<Layout> kLayouts{Layout::kContiguous, Layout::kTransposed, Layout::kStrided};

/// A tensor without values of `numel` (even) elements that lies in memory as `layout` says.
at::Tensor tensor_of(std::int64_t numel, at::ScalarType dtype, Layout layout, const Subject& subject);

/// What rank `rank` gives: small whole numbers that stay exact in every dtype under every operation.
at::Tensor values_of(int rank, const at::Tensor& like, ReduceOp op = ReduceOp::kSum);

/// What must come out, computed in one process from the values of all ranks.
at::Tensor reduced(const at::Tensor& like, ReduceOp op, int ranks);

/// Every case is run with every subject.
template <class Each>
void for_each_subject(Each each) {
  for (const Subject& subject : subjects()) {
    INFO(subject.name);
    each(subject);
  }
}

/// The operations that have a meaning for a dtype.
std::vector<ReduceOp> ops_for(at::ScalarType dtype);

/// Numbers of elements around the ends of the pieces that large buffers are cut into.
std::vector<std::int64_t> border_sizes(std::int64_t element, int ranks);

/// Runs `call` at once or through a Work.
template <class Sync, class Async>
void run(bool async, Sync sync, Async start) {
  if (!async) return sync();
  Work work = start();
  work.wait();
  CHECK(work.is_completed());
}

}  // namespace accel::test
