// A group of one, and groups over a backend of the caller's: here a double that plays both ranks of two.
#include "support/torch_doctest.hpp"

#include "comm/ops.hpp"
#include "device/libtorch_compat.hpp"

#include <accel/error.hpp>
#include <accel/interop.hpp>

#include <ATen/ATen.h>

#include <stdexcept>
#include <string>

using namespace accel;

namespace {

class DoneWork final : public c10d::Work {
 public:
  bool isCompleted() override { return true; }
  bool wait(std::chrono::milliseconds) override { return true; }
};

// Two ranks of which the other gives the same as this one. It knows sums only, as gloo does.
class TwinBackend : public c10d::Backend {
 public:
  TwinBackend() : c10d::Backend(0, 2) {}
  const std::string getBackendName() const override { return "twin"; }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    if (failure) throw std::runtime_error(failure);
    if (!tensors.at(0).is_contiguous()) throw std::logic_error("not contiguous");
    if (options.reduceOp.op_ != c10d::ReduceOp::SUM) throw std::logic_error("sums only");
    asynchronous = accel::detail::is_async(options);
    tensors[0].mul_(2);
    return c10::make_intrusive<DoneWork>();
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions&) override {
    output.view({2, -1}).copy_(input.view({1, -1}));
    return c10::make_intrusive<DoneWork>();
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>&, const c10d::BroadcastOptions&) override {
    return c10::make_intrusive<DoneWork>();
  }
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions&) override { return {}; }

  const char* failure = nullptr;
  bool asynchronous = false;
};

// One that has all operations, and like gloo leaves what it likes in tensors whose rank is not the root.
class WholeTwinBackend final : public TwinBackend {
 public:
  c10::intrusive_ptr<c10d::Work> reduce(std::vector<at::Tensor>& tensors, const c10d::ReduceOptions& options) override {
    calls += options.rootRank == 0 ? "reduce to 0, " : "reduce to 1, ";
    tensors.at(0).mul_(2);
    return c10::make_intrusive<DoneWork>();
  }
  c10::intrusive_ptr<c10d::Work> gather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                                        const c10d::GatherOptions&) override {
    calls += "gather, ";
    for (std::vector<at::Tensor>& list : outputs)
      for (at::Tensor& output : list) output.copy_(inputs.at(0));
    return c10::make_intrusive<DoneWork>();
  }
  c10::intrusive_ptr<c10d::Work> scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                                         const c10d::ScatterOptions&) override {
    calls += "scatter, ";
    outputs.at(0).copy_(inputs.at(0).at(0));
    return c10::make_intrusive<DoneWork>();
  }
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>&,
                                               std::vector<std::int64_t>& sent, const c10d::AllToAllOptions&) override {
    calls += "alltoall, ";
    const std::int64_t count = sent.empty() ? input.numel() / 2 : sent[0];
    output.view({2, count}).copy_(input.narrow(0, 0, count));
    return c10::make_intrusive<DoneWork>();
  }

  std::string calls;
};

template <class Backend>
struct TwinsOver {
  c10::intrusive_ptr<Backend> backend = c10::make_intrusive<Backend>();
  Group group = [this] {
    auto process_group = c10::make_intrusive<c10d::ProcessGroup>(0, 2);
    process_group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM, backend);
    return interop::group_from_c10d(process_group);
  }();
};
using Twins = TwinsOver<TwinBackend>;

// Rank 0 of two that give the same.
void check_twin_calls(const Group& group) {
  at::Tensor sum = at::full({3, 2}, 4.0).t();
  reduce(sum, 0, ReduceOp::kAvg, group);
  CHECK((sum == 4.0).all().item<bool>());
  accel::Work work = reduce_async(sum, 0, ReduceOp::kSum, group);
  work.wait();
  work.wait();
  CHECK((sum == 8.0).all().item<bool>());
  reduce(sum, 1, ReduceOp::kSum, group);
  CHECK((sum == 8.0).all().item<bool>());

  const auto rows = gather(at::full({3, 2}, 7, at::kInt), 0, group);
  REQUIRE(rows.size() == 2);
  CHECK((rows[1] == 7).all().item<bool>());
  CHECK(rows[1].sizes() == at::IntArrayRef({3, 2}));
  CHECK(gather(at::ones({2}), 1, group).empty());

  at::Tensor own = at::zeros({3, 2}).t();
  scatter(own, at::arange(12, at::kFloat).view({4, 3}), 0, group);
  CHECK(at::equal(own, at::arange(6, at::kFloat).view({2, 3})));

  at::Tensor exchanged = at::zeros({2, 4}, at::kInt).t();
  all_to_all(exchanged, at::arange(8, at::kInt).view({4, 2}), group);
  CHECK(at::equal(exchanged, at::arange(4, at::kInt).repeat({2}).view({4, 2})));
  const auto ragged = all_to_all({at::full({3, 2}, 1), at::full({1, 2}, 2)}, group);
  REQUIRE(ragged.size() == 2);
  for (const at::Tensor& part : ragged) CHECK(at::equal(part, at::full({3, 2}, 1)));

  const CommStats stats = group.comm_stats();
  CHECK(stats.of(Operation::kReduce, Purpose::kUser).calls == 3);
  CHECK(stats.of(Operation::kReduce, Purpose::kUser).bytes == 72);
  CHECK(stats.of(Operation::kGather, Purpose::kUser).calls == 2);
  CHECK(stats.of(Operation::kGather, Purpose::kUser).bytes == 24 + 8);
  CHECK(stats.of(Operation::kScatter, Purpose::kUser).bytes == 48);
  CHECK(stats.of(Operation::kAllToAll, Purpose::kUser).calls == 2);
  CHECK(stats.of(Operation::kAllToAll, Purpose::kUser).bytes == 32 + 64);
  CHECK(stats.of(Transport::kOther, Purpose::kUser).calls == 8);
}

}  // namespace

TEST_CASE("a group of one gives back what it is given and counts nothing") {
  const Group group;
  CHECK(group.rank() == 0);
  CHECK(group.size() == 1);
  at::Tensor tensor = at::arange(4, at::kInt);
  all_reduce(tensor, ReduceOp::kProduct, group);
  broadcast(tensor, 0, group);
  CHECK(at::equal(tensor, at::arange(4, at::kInt)));
  const auto gathered = all_gather(tensor, group);
  REQUIRE(gathered.size() == 1);
  CHECK(gathered[0].data_ptr() == tensor.data_ptr());
  at::Tensor row = at::zeros({1, 4}, at::kInt);
  all_gather_into(row, tensor, group);
  CHECK(at::equal(row[0], tensor));
  at::Tensor slice = at::zeros({4}, at::kInt);
  reduce_scatter(slice, row, ReduceOp::kSum, group);
  CHECK(at::equal(slice, tensor));
  barrier(group);
  CHECK(group.comm_stats().of(Purpose::kUser).calls == 0);
  CHECK(accel::detail::control_device(group) == at::kCPU);
  CHECK(accel::detail::all_gather_text("alone", Purpose::kControl, group, {}) == std::vector<std::string>{"alone"});
}

TEST_CASE("calls with a root, and exchanges, of a group of one give back what they are given") {
  const Group group;
  at::Tensor tensor = at::arange(6, at::kInt).view({2, 3});
  reduce(tensor, 0, ReduceOp::kSum, group);
  CHECK(at::equal(tensor, at::arange(6, at::kInt).view({2, 3})));
  const auto gathered = gather(tensor, 0, group);
  REQUIRE(gathered.size() == 1);
  CHECK(gathered[0].data_ptr() == tensor.data_ptr());
  at::Tensor output = at::zeros({3, 2}, at::kInt).t();
  scatter(output, tensor, 0, group);
  CHECK(at::equal(output, tensor));
  output.zero_();
  all_to_all(output, tensor, group);
  CHECK(at::equal(output, tensor));
  CHECK(all_to_all(std::vector<at::Tensor>{tensor}, group)[0].data_ptr() == tensor.data_ptr());
  CHECK_THROWS_AS(reduce(tensor, 1, ReduceOp::kSum, group), UsageError);
  CHECK_THROWS_AS(static_cast<void>(gather(tensor, -1, group)), UsageError);
  CHECK_THROWS_AS(scatter(output, tensor, 1, group), UsageError);
  CHECK_THROWS_AS(scatter(output, at::Tensor(), 0, group), UsageError);
  CHECK_THROWS_AS(scatter(output, at::zeros({7}, at::kInt), 0, group), UsageError);
  CHECK_THROWS_AS(static_cast<void>(all_to_all(std::vector<at::Tensor>{tensor, tensor}, group)), UsageError);
  CHECK(group.comm_stats().of(Purpose::kUser).calls == 0);
}

TEST_CASE("a factor works in a group of one as well") {
  at::Tensor tensor = at::full({3}, 2.0);
  accel::detail::all_reduce(tensor, {.op = ReduceOp::kAvg, .factor = 1.5}, Group(), {});
  CHECK((tensor == 3.0).all().item<bool>());
}

TEST_CASE("split and duplicate of a group of one are groups of one") {
  const Group group;
  CHECK(group.split(7).size() == 1);
  CHECK(group.split(-1).size() == 1);
  CHECK(group.duplicate({.timeout = std::chrono::seconds(3)}).options().timeout == std::chrono::seconds(3));
}

TEST_CASE("sending in a group of one is a usage error") {
  at::Tensor tensor = at::ones({1});
  CHECK_THROWS_AS(send(tensor, 0, Group()), UsageError);
  CHECK_THROWS_AS(recv(tensor, 0, Group()), UsageError);
}

TEST_CASE("work without an operation is complete") {
  Work work;
  CHECK(work.is_completed());
  work.wait();
}

TEST_CASE("averages and factors are made up for where a backend has sums only") {
  const Twins twins;
  at::Tensor mean = at::full({2, 3}, 4.0).t();
  all_reduce(mean, ReduceOp::kAvg, twins.group);
  CHECK((mean == 4.0).all().item<bool>());
  CHECK(!twins.backend->asynchronous);
  Work work = accel::detail::all_reduce_async(mean, {.factor = 0.25}, twins.group, {});
  work.wait();
  work.wait();  // the factor is not applied again
  CHECK((mean == 2.0).all().item<bool>());
  CHECK(twins.backend->asynchronous);
  CHECK(twins.group.comm_stats().of(Operation::kAllReduce, Purpose::kUser).calls == 2);
  CHECK(twins.group.comm_stats().of(Operation::kAllReduce, Purpose::kUser).bytes == 48);
}

TEST_CASE("gathers work over a backend that knows equal lengths only") {
  const Twins twins;
  const auto rows = all_gather(at::full({3, 2}, 7, at::kInt), twins.group);
  REQUIRE(rows.size() == 2);
  CHECK((rows[1] == 7).all().item<bool>());
  CHECK(rows[1].sizes() == at::IntArrayRef({3, 2}));
  barrier(twins.group);  // null instead of a work
}

TEST_CASE("calls with a root, and exchanges, are the backend's where it has them") {
  const TwinsOver<WholeTwinBackend> twins;
  check_twin_calls(twins.group);
  CHECK(twins.backend->calls == "reduce to 0, reduce to 0, reduce to 1, gather, gather, scatter, alltoall, alltoall, ");
}

TEST_CASE("calls with a root, and exchanges, are composed where a backend lacks them") {
  const Twins twins;
  check_twin_calls(twins.group);
}

TEST_CASE("errors of a backend become CommError or TimeoutError") {
  const Twins twins;
  at::Tensor tensor = at::ones({2});
  twins.backend->failure = "Connection reset by peer";
  CHECK_THROWS_AS(all_reduce(tensor, ReduceOp::kSum, twins.group), CommError);
  twins.backend->failure = "Timed out waiting 1000ms for recv operation";
  CHECK_THROWS_AS(all_reduce(tensor, ReduceOp::kSum, twins.group), TimeoutError);
}

TEST_CASE("a device that no backend serves is named") {
  const Twins twins;
  at::Tensor tensor = at::empty({2}, at::TensorOptions().device(at::kMeta));
  try {
    all_reduce(tensor, ReduceOp::kSum, twins.group);
    FAIL("no error");
  } catch (const UsageError& error) {
    CHECK(std::string(error.what()).find("found meta") != std::string::npos);
  }
}

TEST_CASE("no process group is refused") {
  CHECK_THROWS_AS(interop::group_from_c10d({}), UsageError);
}
