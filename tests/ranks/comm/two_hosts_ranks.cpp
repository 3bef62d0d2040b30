// Two hosts with two ranks each: what is summed on a host crosses to the other once. Started by two_hosts.py.
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
        const int sum = dtype == at::kBool ? 1 : 10;
        require((buffer->flat() == at::full({}, sum, dtype)).all().item<bool>(),
                std::string("the sum of 4 ranks in ") + c10::toString(dtype));
      }
    }
  // 2048 + 1 has no float16: partial sums must not be rounded on the way.
  const auto half = accel::detail::reduce_buffers({at::zeros({77}, at::kHalf)}, group).front();
  half->flat().fill_(group.rank() == 0 ? 2048.0 : 1.0);
  half->run({.op = ReduceOp::kSum, .purpose = Purpose::kGradient}, group, {});
  require((half->flat() == at::full({}, 2051.0, at::kFloat).to(at::kHalf)).all().item<bool>(), "one rounding");
}

void check_bytes() {
  const Group& group = world();
  const auto buffer = accel::detail::reduce_buffers({at::ones({1 << 20})}, group).front();
  const CommStats before = group.comm_stats();
  buffer->run({.op = ReduceOp::kAvg, .purpose = Purpose::kGradient}, group, {});
  const CommStats since = group.comm_stats() - before;
  require(since.of(Purpose::kGradient).bytes == 4U << 20, "the payload is the whole buffer");
  require(since.of(Transport::kShared, Purpose::kGradient).bytes == 4U << 20, "all of it is summed in shared memory");
  require(since.of(Transport::kMpi, Purpose::kGradient).bytes / 1024 == 2048, "half of it goes through MPI");
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
  require(at::allclose(start - net->weight.detach(), at::full({10, 20}, 2 * 0.5 * 2.5)),
          "two steps of the mean of ranks");
  require(accelerator.any(accelerator.process_index() == 3), "any over hosts");
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
    require(process().size == 4 && process().hosts == 2 && process().local_size == 2, "2 hosts with 2 ranks each");
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
