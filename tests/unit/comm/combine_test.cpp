// Sums over the buffers of several ranks against at::'s, for every dtype and operation.
#include "comm/combine.hpp"

#include "support/torch_doctest.hpp"

#include <ATen/ATen.h>

#include <vector>

using namespace accel;
using namespace accel::detail;

namespace {

const std::vector<at::ScalarType> kDtypes{at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong,
                                          at::kInt,    at::kShort, at::kChar, at::kByte,     at::kBool};
const std::vector<ReduceOp> kOps{ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct};

std::vector<std::byte*> pointers(const std::vector<at::Tensor>& tensors) {
  std::vector<std::byte*> all;
  for (const at::Tensor& tensor : tensors) all.push_back(static_cast<std::byte*>(tensor.mutable_data_ptr()));
  return all;
}

std::vector<at::Tensor> inputs(int ranks, std::int64_t numel, at::ScalarType dtype) {
  std::vector<at::Tensor> all;
  for (int rank = 0; rank < ranks; ++rank)
    all.push_back(((at::arange(numel, at::kLong) * 5 + rank * 3) % 4 + (dtype == at::kBool ? -1 : 0)).to(dtype));
  return all;
}

// In order of rank, in float32 for 16-bit floats, rounded once.
at::Tensor expected(const std::vector<at::Tensor>& given, ReduceOp op, double factor) {
  const at::ScalarType dtype = given[0].scalar_type();
  const at::ScalarType wide = dtype == at::kBool ? at::kByte : accumulator_of(dtype);
  at::Tensor result = given[0].to(wide);
  for (std::size_t rank = 1; rank < given.size(); ++rank) {
    const at::Tensor next = given[rank].to(wide);
    if (op == ReduceOp::kSum || op == ReduceOp::kAvg) result = dtype == at::kBool ? result | next : result + next;
    if (op == ReduceOp::kMin) result = at::minimum(result, next);
    if (op == ReduceOp::kMax) result = at::maximum(result, next);
    if (op == ReduceOp::kProduct) result = result * next;
  }
  if (op == ReduceOp::kAvg) result = result / static_cast<double>(given.size());
  if (factor != 1.0) result = result * factor;
  return result.to(dtype);
}

}  // namespace

TEST_CASE("combine in place leaves the same result in all buffers, whatever their number, length and dtype") {
  for (const at::ScalarType dtype : kDtypes)
    for (const ReduceOp op : kOps) {
      if (op == ReduceOp::kAvg && !at::isFloatingType(dtype)) continue;
      for (const int ranks : {1, 2, 3, 4, 7})
        for (const std::int64_t numel : {0, 1, 17, 5000}) {
          INFO("dtype ", c10::toString(dtype), " op ", static_cast<int>(op), " ranks ", ranks, " numel ", numel);
          const std::vector<at::Tensor> buffers = inputs(ranks, numel, dtype);
          const at::Tensor wanted = expected(buffers, op, 1.0);
          combine(pointers(buffers), pointers(buffers), numel, {dtype, op, 1.0}, ranks);
          for (const at::Tensor& buffer : buffers) CHECK(at::equal(buffer, wanted));
        }
    }
}

TEST_CASE("one output may be any of the inputs, or another buffer") {
  for (const int ranks : {2, 3})
    for (int output = 0; output <= ranks; ++output) {
      std::vector<at::Tensor> buffers = inputs(ranks, 333, at::kFloat);
      const at::Tensor wanted = expected(buffers, ReduceOp::kAvg, 4.0);
      const std::vector<std::byte*> from = pointers(buffers);
      buffers.push_back(at::zeros({333}));
      std::byte* const to = pointers(buffers)[static_cast<std::size_t>(output)];
      combine(from, {&to, 1}, 333, {at::kFloat, ReduceOp::kAvg, 4.0}, ranks);
      CHECK(at::allclose(buffers[static_cast<std::size_t>(output)], wanted, 1e-7));
    }
}

TEST_CASE("the sum of 16-bit floats is rounded once, also in two steps") {
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    const double large = dtype == at::kHalf ? 2048.0 : 256.0;
    std::vector<at::Tensor> buffers;
    for (int rank = 0; rank < 4; ++rank) buffers.push_back(at::full({70}, rank == 0 ? large : 1.0, dtype));
    const at::Tensor wanted = at::full({70}, (large + 3) / 4 * 2, at::kFloat).to(dtype);
    at::Tensor partial = at::empty({70}, at::kFloat);
    auto* const sums = static_cast<std::byte*>(partial.mutable_data_ptr());
    const Reduction reduction{dtype, ReduceOp::kAvg, 2.0};
    combine_partial(pointers(buffers), sums, 70, reduction);
    CHECK((partial == large + 3).all().item<bool>());
    write_out(sums, pointers(buffers), 70, reduction, 4);
    for (const at::Tensor& buffer : buffers) CHECK(at::equal(buffer, wanted));
  }
}

TEST_CASE("NaN goes through minimum and maximum, whichever rank has it") {
  for (const int rank : {0, 1})
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
      const std::vector<at::Tensor> buffers{at::ones({3}), at::ones({3})};
      buffers[static_cast<std::size_t>(rank)][1] = NAN;
      combine(pointers(buffers), pointers(buffers), 3, {at::kFloat, op, 1.0}, 2);
      CHECK(buffers[0][1].isnan().item<bool>());
      CHECK(buffers[0][0].item<float>() == 1.0F);
    }
}

TEST_CASE("integers wrap around") {
  const std::vector<at::Tensor> buffers{at::full({2}, 100, at::kChar), at::full({2}, 100, at::kChar)};
  combine(pointers(buffers), pointers(buffers), 2, {at::kChar, ReduceOp::kSum, 1.0}, 2);
  CHECK(buffers[0][0].item<int>() == -56);
}
