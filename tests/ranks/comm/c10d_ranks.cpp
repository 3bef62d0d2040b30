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
