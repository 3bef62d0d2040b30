// A peer that does not come, in a group that throws. The group of the job stays good: the ranks talk over it.
#include "support/error_text.hpp"
#include "support/torch_doctest.hpp"

#include <accel/collectives.hpp>
#include <accel/error.hpp>

#include <ATen/ATen.h>

#include <chrono>
#include <string>

using namespace accel;
using accel::test::contains;
using accel::test::error_text;

namespace {

constexpr auto kTimeout = std::chrono::milliseconds(300);

void tell(int to) {
  send(at::ones({1}), to);
}
void listen(int from) {
  at::Tensor word = at::zeros({1});
  recv(word, from);
}

}  // namespace

TEST_CASE("a peer that does not come is a TimeoutError, then the group refuses at once") {
  const Group group = world().duplicate({.timeout = kTimeout, .on_failure = OnFailure::kThrow});
  at::Tensor tensor = at::ones({3});
  if (world().rank() == 0) {
    const auto began = std::chrono::steady_clock::now();
    const std::string text = error_text<TimeoutError>([&] { all_reduce(tensor, ReduceOp::kSum, group); });
    const auto waited = std::chrono::steady_clock::now() - began;
    CHECK(contains(text, "accel[0/2] all_reduce #1 (12 bytes): no answer for 0.3 s"));
    CHECK(contains(text, "failure_ranks.cpp:"));
    CHECK(waited >= kTimeout);
    CHECK(waited < std::chrono::seconds(10));
    CHECK(contains(error_text<CommError>([&] { barrier(group); }), "the group can no longer be used"));
    CHECK(contains(error_text<CommError>([&] { static_cast<void>(group.split(0)); }), "all_reduce #1"));
    CHECK(contains(error_text<CommError>([&] { send(tensor, 1, group); }), "can no longer be used"));
    tell(1);
  } else {
    listen(0);
    // The call that rank 0 left is still under way in its worker: joining it lets both finalise MPI.
    at::Tensor late = at::ones({3});
    all_reduce(late, ReduceOp::kSum, group);
    CHECK((late == 2).all().item<bool>());
  }
  barrier();
}

TEST_CASE("calls with a root and exchanges are left with a TimeoutError that names them") {
  const auto lose = [](const std::string& name, auto call) {
    const Group group = world().duplicate({.timeout = kTimeout, .on_failure = OnFailure::kThrow});
    if (world().rank() == 0) {
      const std::string text = error_text<TimeoutError>([&] { call(group); });
      CHECK(contains(text, "accel[0/2] " + name + " #1 ("));
      CHECK(contains(text, "failure_ranks.cpp:"));
      CHECK(contains(error_text<CommError>([&] { call(group); }), "can no longer be used"));
      tell(1);
    } else {
      listen(0);
      call(group);  // joins the call that rank 0 left
    }
    barrier();
  };
  lose("reduce", [](const Group& group) {
    at::Tensor tensor = at::ones({3});
    reduce(tensor, 0, ReduceOp::kSum, group);
  });
  lose("scatter", [](const Group& group) {
    at::Tensor mine = at::zeros({3});
    scatter(mine, group.rank() == 1 ? at::ones({6}) : at::Tensor(), 1, group);
  });
  lose("all_to_all", [](const Group& group) {
    at::Tensor received = at::zeros({6});
    all_to_all(received, at::ones({6}), group);
  });
}

TEST_CASE("an asynchronous call runs out of time in wait, and calls behind it fail without being sent") {
  const Group group = world().duplicate({.timeout = kTimeout, .on_failure = OnFailure::kThrow});
  at::Tensor first = at::ones({3});
  at::Tensor second = at::ones({3});
  if (world().rank() == 0) {
    Work one = all_reduce_async(first, ReduceOp::kSum, group);
    Work two = all_reduce_async(second, ReduceOp::kSum, group);
    CHECK(contains(error_text<TimeoutError>([&] { one.wait(); }), "#1"));
    tell(1);
    CHECK(contains(error_text<CommError>([&] { two.wait(); }), "#2"));
    CHECK((second == 1).all().item<bool>());
  } else {
    listen(0);
    all_reduce(first, ReduceOp::kSum, group);
  }
  barrier();
}

TEST_CASE("a message that nobody sends is a TimeoutError") {
  const Group group = world().duplicate({.timeout = kTimeout, .on_failure = OnFailure::kThrow});
  at::Tensor tensor = at::ones({3});
  if (world().rank() == 0) {
    CHECK(contains(error_text<TimeoutError>([&] { recv(tensor, 1, group, 9); }), "recv"));
    tell(1);
  } else {
    listen(0);
  }
  barrier();
}

TEST_CASE("a slow queue is no time-out: each call has its own") {
  const Group group = world().duplicate({.timeout = std::chrono::milliseconds(1500), .on_failure = OnFailure::kThrow});
  std::vector<at::Tensor> tensors;
  std::vector<Work> works;
  const int count = 40;
  for (int i = 0; i < count; ++i) tensors.push_back(at::ones({i == count - 1 ? 8 : 1 << 22}));
  for (at::Tensor& tensor : tensors) works.push_back(all_reduce_async(tensor, ReduceOp::kSum, group));
  works.back().wait();
  CHECK((tensors.back() == 2).all().item<bool>());
  for (Work& work : works) work.wait();
}
