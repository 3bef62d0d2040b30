// Groups of groups: split, duplicate, overlapping ones, and the counts that each keeps.
#include "support/torch_doctest.hpp"

#include "comm/ops.hpp"

#include <accel/collectives.hpp>
#include <accel/error.hpp>
#include <accel/interop.hpp>

#include <ATen/ATen.h>

#include <optional>

using namespace accel;

TEST_CASE("split makes groups of equal colors, ordered by key") {
  const int rank = world().rank();
  const int size = world().size();
  const Group parity = world().split(rank % 2, -rank);
  const int members = size / 2 + (rank % 2 < size % 2 ? 1 : 0);
  CHECK(parity.size() == members);
  CHECK(parity.rank() == members - 1 - rank / 2);
  at::Tensor tensor = at::full({3}, rank);
  all_reduce(tensor, ReduceOp::kSum, parity);
  int expected = 0;
  for (int member = rank % 2; member < size; member += 2) expected += member;
  CHECK((tensor == expected).all().item<bool>());
  CHECK(parity.process().local_size == members);
  CHECK(parity.process().local_rank == parity.rank());
}

TEST_CASE("a negative color takes part and stands alone") {
  const Group mine = world().split(world().rank() == 0 ? -1 : 0);
  CHECK(mine.size() == (world().rank() == 0 ? 1 : std::max(1, world().size() - 1)));
  at::Tensor tensor = at::ones({2});
  all_reduce(tensor, ReduceOp::kSum, mine);
  CHECK((tensor == mine.size()).all().item<bool>());
}

TEST_CASE("a duplicate has a communicator, options and counts of its own") {
  const Group copy = world().duplicate({.timeout = std::chrono::seconds(7)});
  CHECK(copy.options().timeout == std::chrono::seconds(7));
  CHECK(copy.rank() == world().rank());
  const CommStats before = world().comm_stats();
  at::Tensor a = at::ones({4});
  at::Tensor b = at::full({4}, 2.0);
  // Different orders on the two groups by rank: legal, since they are independent.
  Work first = world().rank() % 2 == 0 ? all_reduce_async(a) : all_reduce_async(b, ReduceOp::kSum, copy);
  Work second = world().rank() % 2 == 0 ? all_reduce_async(b, ReduceOp::kSum, copy) : all_reduce_async(a);
  first.wait();
  second.wait();
  CHECK((a == world().size()).all().item<bool>());
  CHECK((b == 2 * world().size()).all().item<bool>());
  if (world().size() == 1) return;
  CHECK(copy.comm_stats().of(Operation::kAllReduce, Purpose::kUser).bytes == 16);
  CHECK((world().comm_stats() - before).of(Operation::kAllReduce, Purpose::kUser).bytes == 16);
}

TEST_CASE("case 119: three overlapping groups, an all_reduce under way on each") {
  if (world().size() != 3) return;
  const int rank = world().rank();
  const auto pair = [rank](int a, int b) { return world().split(rank == a || rank == b ? 0 : -1); };
  const Group groups[3] = {pair(0, 1), pair(1, 2), pair(0, 2)};
  for (int round = 0; round < 20; ++round) {
    std::vector<at::Tensor> tensors;
    std::vector<Work> works;
    for (int i = 0; i < 3; ++i) {
      // Each rank begins with another group.
      const Group& group = groups[(i + rank) % 3];
      tensors.push_back(at::full({10000}, rank + 1.0));
      works.push_back(all_reduce_async(tensors.back(), ReduceOp::kSum, group));
    }
    for (Work& work : works) work.wait();
    const double sums[3] = {3.0, 5.0, 4.0};
    for (int i = 0; i < 3; ++i) {
      const int which = (i + rank) % 3;
      const double expected = groups[which].size() == 2 ? sums[which] : rank + 1.0;
      CHECK((tensors[static_cast<std::size_t>(i)] == expected).all().item<bool>());
    }
  }
}

TEST_CASE("comm_stats counts calls and payload by operation and purpose") {
  const Group group = world().duplicate({});
  const bool one = group.size() == 1;  // nothing is handed to MPI
  at::Tensor tensor = at::ones({1000}, at::kHalf);
  at::Tensor rows = at::zeros({group.size(), 1000}, at::kHalf);
  accel::detail::all_reduce(tensor, {.factor = 0.5, .purpose = Purpose::kGradient}, group, {});
  accel::detail::all_reduce_async(tensor, {.purpose = Purpose::kGradient}, group, {}).wait();
  accel::detail::broadcast(tensor, 0, Purpose::kBuffer, group, {});
  all_gather_into(rows, tensor, group);
  reduce_scatter(tensor, rows, ReduceOp::kSum, group);
  static_cast<void>(all_gather(at::ones({group.rank(), 2}), group));
  barrier(group);
  const CommStats stats = group.comm_stats();
  const auto is = [&](Operation operation, Purpose purpose, std::uint64_t calls, std::uint64_t bytes) {
    const OperationStats found = stats.of(operation, purpose);
    CHECK(found.calls == (one ? 0 : calls));
    CHECK(found.bytes == (one ? 0 : bytes));
  };
  const auto size = static_cast<std::uint64_t>(group.size());
  is(Operation::kAllReduce, Purpose::kGradient, 2, 4000);
  is(Operation::kAllReduce, Purpose::kUser, 0, 0);
  is(Operation::kBroadcast, Purpose::kBuffer, 1, 2000);
  is(Operation::kAllGather, Purpose::kUser, 2, 2000 + static_cast<std::uint64_t>(group.rank()) * 8);
  is(Operation::kAllGather, Purpose::kControl, 1, 128);  // the shapes
  is(Operation::kReduceScatter, Purpose::kUser, 1, 2000 * size);
  is(Operation::kBarrier, Purpose::kUser, 1, 0);
  CHECK((stats - stats).of(Purpose::kGradient).calls == 0);
}

TEST_CASE("comm_stats counts what has a root, and exchanges, as the tensor that a rank gives") {
  const Group group = world().duplicate({});
  const int rank = group.rank();
  const int root = group.size() - 1;
  const auto size = static_cast<std::uint64_t>(group.size());
  const bool one = group.size() == 1;  // nothing is handed to MPI
  at::Tensor tensor = at::ones({1000}, at::kHalf);
  at::Tensor rows = at::ones({group.size(), 1000}, at::kHalf);
  at::Tensor received = at::zeros_like(rows);
  reduce(tensor, root, ReduceOp::kSum, group);
  reduce_async(tensor, root, ReduceOp::kAvg, group).wait();
  scatter(tensor, rank == root ? rows : at::Tensor(), root, group);
  all_to_all(received, rows, group);
  static_cast<void>(gather(at::ones({rank, 2}), root, group));
  static_cast<void>(all_to_all(std::vector<at::Tensor>(size, at::ones({rank, 3})), group));
  const CommStats stats = group.comm_stats();
  const auto is = [&](Operation operation, Purpose purpose, std::uint64_t calls, std::uint64_t bytes) {
    const OperationStats found = stats.of(operation, purpose);
    CHECK(found.calls == (one ? 0 : calls));
    CHECK(found.bytes == (one ? 0 : bytes));
  };
  const auto mine = static_cast<std::uint64_t>(rank);
  is(Operation::kReduce, Purpose::kUser, 2, 4000);
  is(Operation::kScatter, Purpose::kUser, 1, rank == root ? 2000 * size : 2000);
  is(Operation::kAllToAll, Purpose::kUser, 2, 2000 * size + size * mine * 12);
  is(Operation::kGather, Purpose::kUser, 1, mine * 8);
  is(Operation::kAllGather, Purpose::kControl, 2, 128 + 128 + 8 * size);  // the shapes, and rows for each rank
  is(Operation::kAllReduce, Purpose::kUser, 0, 0);
  CHECK(stats.of(Transport::kMpi, Purpose::kUser).calls == (one ? 0 : 6));
}

TEST_CASE("work that is dropped with its group still ends on the other ranks") {
  at::Tensor tensor = at::ones({100000});
  std::optional<Group> group(world().duplicate({}));
  Work work = all_reduce_async(tensor, ReduceOp::kSum, *group);
  group.reset();
  work.wait();
  CHECK((tensor == world().size()).all().item<bool>());
}

TEST_CASE("a c10d process group cannot be split, and says what to do instead") {
  if (world().size() == 1) return;
  auto process_group = c10::make_intrusive<c10d::ProcessGroup>(world().rank(), world().size());
  process_group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM,
                            interop::backend_of(world(), c10::DeviceType::CPU));
  const Group group = interop::group_from_c10d(process_group);
  CHECK_THROWS_AS(static_cast<void>(group.split(0)), UsageError);
  CHECK(group.duplicate({}).size() == world().size());
}

TEST_CASE("in-place results are seen by autograd") {
  at::Tensor tensor = at::ones({3});
  const auto version = tensor._version();
  all_reduce(tensor);
  CHECK(tensor._version() > version);
}
