#pragma once

// What tests on several ranks ask: what is equal, what differs, and what was sent.

#include <accel/accelerator.hpp>

#include "support/error_text.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

namespace accel::test {

inline int rank() {
  return world().rank();
}
inline int ranks() {
  return world().size();
}

/// The bytes of the tensor on each rank; of an undefined one, nothing. Collective.
inline std::vector<at::Tensor> bytes_of_ranks(const at::Tensor& tensor, const Group& group = world()) {
  const at::Tensor bytes =
      tensor.defined() ? tensor.detach().reshape({-1}).contiguous().view(at::kByte) : at::full({0}, 0, at::kByte);
  return all_gather(bytes, group);
}

/// Bit for bit the same on every rank, or undefined on every rank. Collective.
inline bool same_on_all_ranks(const at::Tensor& tensor, const Group& group = world()) {
  const auto bytes = bytes_of_ranks(tensor, group);
  bool same = true;
  for (const at::Tensor& each : bytes) same = same && at::equal(each, bytes.front());
  return same;
}

/// No two ranks have the same; true on one rank, where there is nobody to differ from. Collective.
inline bool differs_between_ranks(const at::Tensor& tensor, const Group& group = world()) {
  const auto bytes = bytes_of_ranks(tensor, group);
  for (std::size_t a = 0; a < bytes.size(); ++a)
    for (std::size_t b = 0; b < a; ++b)
      if (at::equal(bytes[a], bytes[b])) return false;
  return true;
}

/// What an accelerator sent since it was last asked.
class Traffic {
 public:
  explicit Traffic(const Accelerator& accelerator, Purpose purpose = Purpose::kGradient)
      : accelerator_(accelerator), purpose_(purpose), before_(accelerator.comm_stats()) {}

  OperationStats take() {
    const CommStats now = accelerator_.comm_stats();
    const OperationStats since = (now - before_).of(purpose_);
    before_ = now;
    return since;
  }
  std::uint64_t bytes() { return take().bytes; }
  std::uint64_t calls() { return take().calls; }

 private:
  const Accelerator& accelerator_;
  Purpose purpose_;
  CommStats before_;
};

/// `count` where there is somebody to send to, else nothing.
inline std::uint64_t sent(std::uint64_t count) {
  return ranks() > 1 ? count : 0;
}

/// The mean over ranks of `value(rank)`, worked out by every rank for itself.
template <class Value>
double mean_over_ranks(Value value) {
  double sum = 0.0;
  for (int each = 0; each < ranks(); ++each) sum += value(each);
  return sum / ranks();
}

/// The input of a rank in most tests, different on each: 1, 2, ...
inline double one_more(int r) {
  return r + 1.0;
}
inline double mine() {
  return one_more(rank());
}
inline double mean_of_ranks() {
  return mean_over_ranks(one_more);
}

}  // namespace accel::test
