// What has no meaning is refused before anything is sent, and the group stays good.
#include "support/error_text.hpp"
#include "support/torch_doctest.hpp"

#include <accel/collectives.hpp>
#include <accel/error.hpp>

#include <ATen/ATen.h>

#include <string>

using namespace accel;
using accel::test::contains;
using accel::test::error_text;

TEST_CASE("tensors that cannot travel are refused by name") {
  at::Tensor undefined;
  at::Tensor sparse = at::eye(3).to_sparse();
  at::Tensor complex = at::zeros({2}, at::kComplexFloat);
  at::Tensor whole = at::ones({2}, at::kInt);
  at::Tensor expanded = at::zeros({1}).expand({4});
  CHECK(contains(error_text<UsageError>([&] { all_reduce(undefined); }), "undefined"));
  CHECK(contains(error_text<UsageError>([&] { all_reduce(sparse); }), "Sparse"));
  CHECK(contains(error_text<UsageError>([&] { all_reduce(complex, ReduceOp::kMax); }),
                 "kSum or kAvg for complex numbers"));
  at::Tensor conjugated = complex.conj();
  CHECK(contains(error_text<UsageError>([&] { all_reduce(conjugated); }), "give tensor.resolve_conj()"));
  CHECK(contains(error_text<UsageError>([&] { all_reduce(whole, ReduceOp::kAvg); }),
                 "floating dtype for kAvg, found Int"));
  CHECK(contains(error_text<UsageError>([&] { all_reduce(expanded); }), "expanded view"));
  CHECK(contains(error_text<UsageError>([&] { all_reduce(expanded); }), "errors_ranks.cpp:"));
  CHECK(contains(error_text<UsageError>([&] { reduce(undefined); }), "undefined"));
  CHECK(contains(error_text<UsageError>([&] { reduce(whole, 0, ReduceOp::kAvg); }),
                 "floating dtype for kAvg, found Int"));
  CHECK(contains(error_text<UsageError>([&] { reduce(complex, 0, ReduceOp::kProduct); }),
                 "kSum or kAvg for complex numbers"));
  CHECK(contains(error_text<UsageError>([&] { scatter(expanded, undefined); }), "expanded view"));
  CHECK(contains(error_text<UsageError>([&] { all_to_all(expanded, expanded); }), "expanded view"));
  CHECK(contains(error_text<UsageError>([&] { static_cast<void>(gather(sparse)); }), "Sparse"));
  barrier();
}

TEST_CASE("ranks outside the group are refused by number") {
  at::Tensor tensor = at::zeros({2});
  const int size = world().size();
  const std::string range = "0.." + std::to_string(size - 1) + ", found ";
  CHECK(contains(error_text<UsageError>([&] { broadcast(tensor, size); }), range + std::to_string(size)));
  CHECK(contains(error_text<UsageError>([&] { broadcast(tensor, -1); }), range + "-1"));
  CHECK(contains(error_text<UsageError>([&] { reduce(tensor, size); }), "reduce: expected `root` in " + range));
  CHECK(contains(error_text<UsageError>([&] { static_cast<void>(gather(tensor, -1)); }),
                 "gather: expected `root` in " + range + "-1"));
  CHECK(
      contains(error_text<UsageError>([&] { scatter(tensor, tensor, size); }), "scatter: expected `root` in " + range));
  if (size == 1) {
    CHECK(contains(error_text<UsageError>([&] { send(tensor, 0); }), "group of one"));
    CHECK(contains(error_text<UsageError>([&] { recv(tensor, 0); }), "group of one"));
  } else {
    CHECK(contains(error_text<UsageError>([&] { send(tensor, world().rank()); }), "another rank"));
    CHECK(contains(error_text<UsageError>([&] { send(tensor, size); }), range));
    CHECK(contains(error_text<UsageError>([&] { send(tensor, (world().rank() + 1) % size, world(), -3); }), "tag"));
  }
  barrier();
}

TEST_CASE("outputs of a wrong size or dtype are refused") {
  at::Tensor input = at::zeros({3});
  at::Tensor output = at::zeros({world().size(), 4});
  at::Tensor other = at::zeros({world().size(), 3}, at::kInt);
  CHECK(contains(error_text<UsageError>([&] { all_gather_into(output, input); }), "elements"));
  CHECK(contains(error_text<UsageError>([&] { all_gather_into(other, input); }), "one dtype"));
  CHECK(contains(error_text<UsageError>([&] { reduce_scatter(input, output); }), "elements"));
  // Of scatter, the root alone knows the input.
  if (world().rank() == 0) {
    CHECK(contains(error_text<UsageError>([&] { scatter(input, output, 0); }), "elements"));
    CHECK(contains(error_text<UsageError>([&] { scatter(input, other, 0); }), "one dtype"));
    CHECK(
        contains(error_text<UsageError>([&] { scatter(input, at::Tensor(), 0); }), "`input`, found an undefined one"));
  }
  CHECK(contains(error_text<UsageError>([&] { all_to_all(output, other); }), "expected `output` like `input`"));
  barrier();
}

TEST_CASE("a time-out of nothing is refused when a group is made") {
  CHECK(contains(
      error_text<UsageError>([] { static_cast<void>(Group().duplicate({.timeout = std::chrono::milliseconds(0)})); }),
      "above zero"));
}

TEST_CASE("a message of another length than the tensor is named on the receiver, and the group stays good") {
  if (world().size() < 2) return;
  if (world().rank() == 0) send(at::ones({2}), 1);
  if (world().rank() == 1) {
    at::Tensor large = at::zeros({5});
    CHECK(contains(error_text<UsageError>([&] { recv(large, 0); }), "expected 20 bytes, found a message of 8"));
  }
  barrier();
}
