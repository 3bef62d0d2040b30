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
class TwinBackend final : public c10d::Backend {
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
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions&) override { return {}; }

  const char* failure = nullptr;
  bool asynchronous = false;
};

struct Twins {
  c10::intrusive_ptr<TwinBackend> backend = c10::make_intrusive<TwinBackend>();
  Group group = [this] {
    auto process_group = c10::make_intrusive<c10d::ProcessGroup>(0, 2);
    process_group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM, backend);
    return interop::group_from_c10d(process_group);
  }();
};

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
