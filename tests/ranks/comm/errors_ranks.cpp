// What has no meaning is refused before anything is sent, and the group stays good.
#include "support/torch_doctest.hpp"

#include <accel/collectives.hpp>
#include <accel/error.hpp>

#include <ATen/ATen.h>

#include <string>

using namespace accel;

namespace {

template <class Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

bool contains(const std::string& text, const std::string& part) {
  const bool found = text.find(part) != std::string::npos;
  if (!found) MESSAGE("text: " << text << " | wanted: " << part);
  return found;
}

}  // namespace

TEST_CASE("tensors that cannot travel are refused by name") {
  at::Tensor undefined;
  at::Tensor sparse = at::eye(3).to_sparse();
  at::Tensor complex = at::zeros({2}, at::kComplexFloat);
  at::Tensor whole = at::ones({2}, at::kInt);
  at::Tensor expanded = at::zeros({1}).expand({4});
  CHECK(contains(refusal([&] { all_reduce(undefined); }), "undefined"));
  CHECK(contains(refusal([&] { all_reduce(sparse); }), "Sparse"));
  CHECK(contains(refusal([&] { all_reduce(complex, ReduceOp::kMax); }), "kSum or kAvg for complex numbers"));
  at::Tensor conjugated = complex.conj();
  CHECK(contains(refusal([&] { all_reduce(conjugated); }), "give tensor.resolve_conj()"));
  CHECK(contains(refusal([&] { all_reduce(whole, ReduceOp::kAvg); }), "floating dtype for kAvg, found Int"));
  CHECK(contains(refusal([&] { all_reduce(expanded); }), "expanded view"));
  CHECK(contains(refusal([&] { all_reduce(expanded); }), "errors_ranks.cpp:"));
  CHECK(contains(refusal([&] { reduce(undefined); }), "undefined"));
  CHECK(contains(refusal([&] { reduce(whole, 0, ReduceOp::kAvg); }), "floating dtype for kAvg, found Int"));
  CHECK(contains(refusal([&] { reduce(complex, 0, ReduceOp::kProduct); }), "kSum or kAvg for complex numbers"));
  CHECK(contains(refusal([&] { scatter(expanded, undefined); }), "expanded view"));
  CHECK(contains(refusal([&] { all_to_all(expanded, expanded); }), "expanded view"));
  CHECK(contains(refusal([&] { static_cast<void>(gather(sparse)); }), "Sparse"));
  barrier();
}

TEST_CASE("ranks outside the group are refused by number") {
  at::Tensor tensor = at::zeros({2});
  const int size = world().size();
  const std::string range = "0.." + std::to_string(size - 1) + ", found ";
  CHECK(contains(refusal([&] { broadcast(tensor, size); }), range + std::to_string(size)));
  CHECK(contains(refusal([&] { broadcast(tensor, -1); }), range + "-1"));
  CHECK(contains(refusal([&] { reduce(tensor, size); }), "reduce: expected `root` in " + range));
  CHECK(
      contains(refusal([&] { static_cast<void>(gather(tensor, -1)); }), "gather: expected `root` in " + range + "-1"));
  CHECK(contains(refusal([&] { scatter(tensor, tensor, size); }), "scatter: expected `root` in " + range));
  if (size == 1) {
    CHECK(contains(refusal([&] { send(tensor, 0); }), "group of one"));
    CHECK(contains(refusal([&] { recv(tensor, 0); }), "group of one"));
  } else {
    CHECK(contains(refusal([&] { send(tensor, world().rank()); }), "another rank"));
    CHECK(contains(refusal([&] { send(tensor, size); }), range));
    CHECK(contains(refusal([&] { send(tensor, (world().rank() + 1) % size, world(), -3); }), "tag"));
  }
  barrier();
}

TEST_CASE("outputs of a wrong size or dtype are refused") {
  at::Tensor input = at::zeros({3});
  at::Tensor output = at::zeros({world().size(), 4});
  at::Tensor other = at::zeros({world().size(), 3}, at::kInt);
  CHECK(contains(refusal([&] { all_gather_into(output, input); }), "elements"));
  CHECK(contains(refusal([&] { all_gather_into(other, input); }), "one dtype"));
  CHECK(contains(refusal([&] { reduce_scatter(input, output); }), "elements"));
  // Of scatter, the root alone knows the input.
  if (world().rank() == 0) {
    CHECK(contains(refusal([&] { scatter(input, output, 0); }), "elements"));
    CHECK(contains(refusal([&] { scatter(input, other, 0); }), "one dtype"));
    CHECK(contains(refusal([&] { scatter(input, at::Tensor(), 0); }), "`input`, found an undefined one"));
  }
  CHECK(contains(refusal([&] { all_to_all(output, other); }), "expected `output` like `input`"));
  barrier();
}

TEST_CASE("a time-out of nothing is refused when a group is made") {
  CHECK(contains(refusal([] { static_cast<void>(Group().duplicate({.timeout = std::chrono::milliseconds(0)})); }),
                 "above zero"));
}

TEST_CASE("a message of another length than the tensor is named on the receiver, and the group stays good") {
  if (world().size() < 2) return;
  if (world().rank() == 0) send(at::ones({2}), 1);
  if (world().rank() == 1) {
    at::Tensor large = at::zeros({5});
    CHECK(contains(refusal([&] { recv(large, 0); }), "expected 20 bytes, found a message of 8"));
  }
  barrier();
}
