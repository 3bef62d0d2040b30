// Two hosts with two ranks each, or with two and one: what is summed on a host crosses to the other once. Started by
// two_hosts.py.
#include "comm/reduce_buffer.hpp"

#include <accel/accelerator.hpp>
#include <accel/process.hpp>

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

namespace {

using namespace accel;

void require(bool condition, const std::string& what) {
  if (condition) return;
  std::printf("failed: %s on rank %d\n", what.c_str(), process().rank);
  std::fflush(stdout);
  job_abort(1, what);
}

void check_values() {
  const Group& group = world();
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kBool})
    for (const std::int64_t numel : {0, 1, 2, 1000, 700001}) {
      const auto buffer = accel::detail::reduce_buffers({at::zeros({numel}, dtype)}, group).front();
      for (const bool background : {false, true, false}) {
        buffer->flat().fill_(group.rank() + 1);
        const accel::detail::ReduceSpec spec{.op = ReduceOp::kSum, .purpose = Purpose::kGradient};
        if (background) {
          buffer->start(spec, group, {});
          buffer->wait();
        } else {
          buffer->run(spec, group, {});
        }
        const int sum = dtype == at::kBool ? 1 : group.size() * (group.size() + 1) / 2;
        require((buffer->flat() == at::full({}, sum, dtype)).all().item<bool>(),
                std::string("the sum of all ranks in ") + c10::toString(dtype));
      }
    }
  // 2048 + 1 has no float16: partial sums must not be rounded on the way.
  const auto half = accel::detail::reduce_buffers({at::zeros({77}, at::kHalf)}, group).front();
  half->flat().fill_(group.rank() == 0 ? 2048.0 : 1.0);
  half->run({.op = ReduceOp::kSum, .purpose = Purpose::kGradient}, group, {});
  require((half->flat() == at::full({}, 2047.0 + group.size(), at::kFloat).to(at::kHalf)).all().item<bool>(),
          "one rounding");
}

void check_bytes() {
  const Group& group = world();
  const auto buffer = accel::detail::reduce_buffers({at::ones({1 << 20})}, group).front();
  const CommStats before = group.comm_stats();
  buffer->run({.op = ReduceOp::kAvg, .purpose = Purpose::kGradient}, group, {});
  const CommStats since = group.comm_stats() - before;
  require(since.of(Purpose::kGradient).bytes == 4U << 20, "the payload is the whole buffer");
  require(since.of(Transport::kShared, Purpose::kGradient).bytes == 4U << 20, "all of it is summed in shared memory");
  // The smaller host decides how many ranks share what crosses.
  const std::uint64_t slice = group.size() == 4 ? 2U << 20 : group.process().local_rank == 0 ? 4U << 20 : 0;
  require(since.of(Transport::kMpi, Purpose::kGradient).bytes == slice, "this rank's slice goes through MPI");
  require((buffer->flat() == 1.0).all().item<bool>(), "the mean of ones");
}

void check_training() {
  Accelerator accelerator({.gradient_accumulation_steps = 2, .bucket_bytes = 100});
  at::manual_seed(1);
  auto net = std::make_shared<torch::nn::LinearImpl>(20, 10);
  torch::optim::SGD sgd(net->parameters(), 0.5);
  auto [model, optimizer] = accelerator.prepare(net, sgd);
  const at::Tensor start = net->weight.detach().clone();
  for (int micro = 0; micro < 4; ++micro) {
    const auto guard = accelerator.accumulate(model);
    accelerator.backward(model->forward(at::ones({1, 20})).sum() * (accelerator.process_index() + 1.0));
    optimizer.step();
    optimizer.zero_grad();
  }
  require(
      at::allclose(start - net->weight.detach(), at::full({10, 20}, 2 * 0.5 * (accelerator.num_processes() + 1) / 2.0)),
      "two steps of the mean of ranks");
  require(accelerator.any(accelerator.process_index() == accelerator.num_processes() - 1), "any over hosts");
}

// What the script counts on the wire between the hosts.
void send_much(int times) {
  const auto buffer = accel::detail::reduce_buffers({at::ones({1 << 20})}, world()).front();
  for (int each = 0; each < times; ++each)
    buffer->run({.op = ReduceOp::kAvg, .purpose = Purpose::kGradient}, world(), {});
}

}  // namespace

int main(int argc, char** argv) {
  try {
    require(process().size >= 3 && process().hosts == 2, "two hosts with two ranks, or two and one");
    if (argc > 1) {
      send_much(std::atoi(argv[1]));
    } else {
      check_values();
      check_bytes();
      check_training();
    }
    if (process().rank == 0) std::printf("as expected\n");
  } catch (const std::exception& error) {
    require(false, error.what());
  }
}
