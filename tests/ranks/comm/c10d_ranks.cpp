// accel's backend as code that speaks c10d sees it: lists of tensors, futures, explicit time-outs.
#include "support/torch_doctest.hpp"

#include <accel/error.hpp>
#include <accel/interop.hpp>

#include <ATen/ATen.h>

using namespace accel;

namespace {

c10::intrusive_ptr<c10d::Backend> backend() {
  return interop::backend_of(world(), c10::DeviceType::CPU);
}

// What every backend has, and nothing more.
class BareBackend final : public c10d::Backend {
 public:
  using Work = c10::intrusive_ptr<c10d::Work>;

  BareBackend() : c10d::Backend(world().rank(), world().size()) {}
  const std::string getBackendName() const override { return "bare"; }
  Work allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    return whole_->allreduce(tensors, options);
  }
  Work broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override {
    return whole_->broadcast(tensors, options);
  }
  Work _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    return whole_->_allgather_base(output, input, options);
  }

 private:
  const c10::intrusive_ptr<c10d::Backend> whole_ = backend();
};

}  // namespace

TEST_CASE("a group of one has no backend") {
  CHECK(!interop::backend_of(Group(), c10::DeviceType::CPU));
}

TEST_CASE("allgather and reduce_scatter take lists of tensors") {
  if (world().size() == 1) return;
  const int rank = world().rank();
  const int size = world().size();
  std::vector<at::Tensor> inputs{at::full({3}, rank)};
  std::vector<std::vector<at::Tensor>> outputs(1);
  for (int i = 0; i < size; ++i) outputs[0].push_back(at::zeros({3}, at::kLong));
  backend()->allgather(outputs, inputs)->wait();
  for (int i = 0; i < size; ++i) CHECK((outputs[0][static_cast<std::size_t>(i)] == i).all().item<bool>());

  std::vector<at::Tensor> sums{at::zeros({3})};
  std::vector<std::vector<at::Tensor>> parts(1);
  for (int i = 0; i < size; ++i) parts[0].push_back(at::full({3}, 1.0 + i));
  backend()->reduce_scatter(sums, parts)->wait();
  CHECK((sums[0] == size * (1.0 + rank)).all().item<bool>());
}

TEST_CASE("reduce, gather and scatter have a root") {
  if (world().size() == 1) return;
  const int rank = world().rank();
  const int size = world().size();
  const int root = size - 1;
  c10d::ReduceOptions reduce_options;
  reduce_options.rootRank = root;
  reduce_options.reduceOp = c10d::ReduceOp::AVG;
  std::vector<at::Tensor> tensors{at::full({5}, 2.0 * rank)};
  backend()->reduce(tensors, reduce_options)->wait();
  CHECK((tensors[0] == (rank == root ? size - 1.0 : 2.0 * rank)).all().item<bool>());

  c10d::GatherOptions gather_options;
  gather_options.rootRank = root;
  std::vector<at::Tensor> inputs{at::full({2, 3}, rank)};
  std::vector<std::vector<at::Tensor>> outputs(rank == root ? 1 : 0);
  for (int i = 0; i < size && rank == root; ++i) outputs[0].push_back(at::zeros({2, 3}, at::kLong));
  backend()->gather(outputs, inputs, gather_options)->wait();
  for (int i = 0; i < size && rank == root; ++i)
    CHECK((outputs[0][static_cast<std::size_t>(i)] == i).all().item<bool>());

  c10d::ScatterOptions scatter_options;
  scatter_options.rootRank = root;
  std::vector<at::Tensor> mine{at::zeros({3, 2}).t()};
  std::vector<std::vector<at::Tensor>> parts(rank == root ? 1 : 0);
  for (int i = 0; i < size && rank == root; ++i) parts[0].push_back(at::full({2, 3}, 7.0 + i));
  const auto scattered = backend()->scatter(mine, parts, scatter_options);
  scattered->wait();
  CHECK((mine[0] == 7.0 + rank).all().item<bool>());
  CHECK(scattered->result().size() == 1);

  for (const std::int64_t wrong : {-1, size}) {
    reduce_options.rootRank = gather_options.rootRank = scatter_options.rootRank = wrong;
    CHECK_THROWS_AS(backend()->reduce(tensors, reduce_options), UsageError);
    CHECK_THROWS_AS(backend()->gather(outputs, inputs, gather_options), UsageError);
    CHECK_THROWS_AS(backend()->scatter(mine, parts, scatter_options), UsageError);
  }
}

TEST_CASE("alltoall_base takes equal shares and shares that are said, alltoall lists") {
  if (world().size() == 1) return;
  const int rank = world().rank();
  const int size = world().size();
  std::vector<std::int64_t> none;
  at::Tensor input = at::arange(size, at::kInt).repeat_interleave(2).view({size, 2}) + 10 * rank;
  at::Tensor output = at::zeros({size, 2}, at::kInt);
  backend()->alltoall_base(output, input, none, none)->wait();
  for (int from = 0; from < size; ++from) CHECK((output[from] == 10 * from + rank).all().item<bool>());

  // Rank r sends r + 1 rows to each rank but the last, which gets none.
  std::vector<std::int64_t> sent(static_cast<std::size_t>(size), rank + 1);
  sent.back() = 0;
  std::vector<std::int64_t> received;
  for (int from = 0; from < size; ++from) received.push_back(rank == size - 1 ? 0 : from + 1);
  at::Tensor rows = at::full({(rank + 1) * (size - 1), 3}, rank, at::kDouble);
  at::Tensor into = at::zeros({rank == size - 1 ? 0 : size * (size + 1) / 2, 3}, at::kDouble);
  backend()->alltoall_base(into, rows, received, sent)->wait();
  for (std::int64_t from = 0, first = 0; from < size && into.numel() > 0; first += ++from)
    CHECK((into.narrow(0, first, from + 1) == from).all().item<bool>());

  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> outputs;
  for (int other = 0; other < size; ++other) {
    inputs.push_back(at::full({rank, other, 2}, 10 * rank + other));
    outputs.push_back(at::zeros({other, rank, 2}, at::kLong));
  }
  backend()->alltoall(outputs, inputs)->wait();
  for (int from = 0; from < size; ++from)
    CHECK((outputs[static_cast<std::size_t>(from)] == 10 * from + rank).all().item<bool>());

  std::vector<std::int64_t> wrong(static_cast<std::size_t>(size), 7);
  CHECK_THROWS_AS(backend()->alltoall_base(output, input, wrong, none), UsageError);
  inputs.pop_back();
  CHECK_THROWS_AS(backend()->alltoall(outputs, inputs), UsageError);
}

TEST_CASE("calls with a root, and exchanges, are composed from what every backend has") {
  const int rank = world().rank();
  const int size = world().size();
  if (size == 1) return;
  auto process_group = c10::make_intrusive<c10d::ProcessGroup>(rank, size);
  process_group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM,
                            c10::make_intrusive<BareBackend>());
  const Group group = interop::group_from_c10d(process_group);
  for (int root = 0; root < size; ++root) {
    at::Tensor sum = at::full({3, 2}, rank + 1.0).t();
    reduce(sum, root, ReduceOp::kSum, group);
    CHECK((sum == (rank == root ? size * (size + 1) / 2.0 : rank + 1.0)).all().item<bool>());
    Work work = reduce_async(sum, root, ReduceOp::kMax, group);
    work.wait();
    CHECK((sum == (rank == root ? size * (size + 1) / 2.0 : rank + 1.0)).all().item<bool>());

    const auto rows = gather(at::full({rank * 2, 3}, rank, at::kHalf), root, group);
    REQUIRE(rows.size() == static_cast<std::size_t>(rank == root ? size : 0));
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const auto from = static_cast<std::int64_t>(r);
      CHECK(at::equal(rows[r], at::full({from * 2, 3}, from, at::kHalf)));
    }

    at::Tensor own = at::zeros({5}, at::kInt);
    const at::Tensor all = at::arange(size * 5, at::kInt).view({size, 5});
    Work scattering = scatter_async(own, rank == root ? all : at::Tensor(), root, group);
    scattering.wait();
    CHECK(at::equal(own, all[rank]));
  }
  at::Tensor exchanged = at::zeros({2, 2 * size}).t();
  at::Tensor given = at::arange(size).repeat_interleave(4).view({2 * size, 2}).to(at::kFloat) + 10 * rank;
  all_to_all_async(exchanged, given, group).wait();
  for (int from = 0; from < size; ++from)
    CHECK((exchanged.narrow(0, 2 * from, 2) == 10 * from + rank).all().item<bool>());

  std::vector<at::Tensor> inputs;
  for (int to = 0; to < size; ++to) inputs.push_back(at::full({rank + 2 * to, 2}, 10 * rank + to));
  const auto outputs = all_to_all(inputs, group);
  for (int from = 0; from < size; ++from)
    CHECK(at::equal(outputs[static_cast<std::size_t>(from)], at::full({from + 2 * rank, 2}, 10 * from + rank)));
  CHECK(group.comm_stats().of(Operation::kAllToAll, Purpose::kUser).calls == 2);
  CHECK(group.comm_stats().of(Operation::kAllGather, Purpose::kUser).calls == 0);
}

TEST_CASE("a future tells when the result is there, before or after the fact") {
  if (world().size() == 1) return;
  std::vector<at::Tensor> tensors{at::ones({100000})};
  const auto work = backend()->allreduce(tensors);
  const auto future = work->getFuture();
  future->wait();
  CHECK(future->completed());
  CHECK((tensors[0] == world().size()).all().item<bool>());
  CHECK(work->isCompleted());
  CHECK(work->isSuccess());
  CHECK(work->result().size() == 1);
  c10d::AllreduceOptions in_place;
  in_place.asyncOp = false;
  CHECK(backend()->allreduce(tensors, in_place)->getFuture()->completed());
}

TEST_CASE("complex numbers are summed and averaged; other operations are refused, and the group stays good") {
  if (world().size() == 1) return;
  const double size = world().size();
  const auto value = [&] { return at::full({4}, c10::complex<double>(world().rank(), 1.0), at::kComplexDouble); };
  std::vector<at::Tensor> tensors{value()};
  backend()->allreduce(tensors)->wait();
  CHECK((tensors[0] == at::full({4}, c10::complex<double>(size * (size - 1) / 2, size), at::kComplexDouble))
            .all()
            .item<bool>());
  c10d::AllreduceOptions options;
  for (const auto op : {c10d::ReduceOp::MAX, c10d::ReduceOp::PRODUCT}) {
    options.reduceOp = op;
    CHECK_THROWS_AS(backend()->allreduce(tensors, options), UsageError);
  }
  options.reduceOp = c10d::ReduceOp::AVG;
  tensors[0] = value();
  backend()->allreduce(tensors, options)->wait();
  CHECK(tensors[0][3].item<c10::complex<double>>() == c10::complex<double>((size - 1) / 2, 1.0));
}

TEST_CASE("premultiplied sums and averages scale, bitwise operations are refused") {
  if (world().size() == 1) return;
  std::vector<at::Tensor> tensors{at::ones({5})};
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::makePreMulSum(3.0);
  backend()->allreduce(tensors, options)->wait();
  CHECK((tensors[0] == 3.0 * world().size()).all().item<bool>());
  options.reduceOp = c10d::ReduceOp::AVG;
  backend()->allreduce(tensors, options)->wait();
  CHECK((tensors[0] == 3.0 * world().size()).all().item<bool>());
  options.reduceOp = c10d::ReduceOp::BAND;
  CHECK_THROWS_AS(backend()->allreduce(tensors, options), UsageError);
}

TEST_CASE("point-to-point works through c10d, with a limit of its own") {
  if (world().size() == 1) return;
  const int rank = world().rank();
  const int size = world().size();
  std::vector<at::Tensor> received{at::zeros({4})};
  std::vector<at::Tensor> sent{at::full({4}, rank)};
  sent[0] = sent[0].to(at::kFloat);
  const auto receive = backend()->recv(received, (rank + size - 1) % size, 3);
  const auto send = backend()->send(sent, (rank + 1) % size, 3);
  CHECK(receive->wait(std::chrono::seconds(30)));
  CHECK(send->wait(std::chrono::seconds(30)));
  CHECK((received[0] == (rank + size - 1) % size).all().item<bool>());
}
