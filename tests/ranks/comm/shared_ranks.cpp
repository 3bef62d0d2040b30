// Gradients in memory that the ranks of one host share: the buffers themselves, and what an Accelerator makes of them.
// Also run with ACCEL_SHARED_MEMORY=0, where the same numbers come by way of MPI.
#include "support/probe.hpp"
#include "support/rank_expect.hpp"
#include "support/torch_doctest.hpp"

#include "conformance.hpp"

#include "comm/reduce_buffer.hpp"
#include "runtime/shared_memory.hpp"

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

namespace accel::test {

const std::vector<Subject>& subjects() {
  static const std::vector<Subject> world_only{{"world", world()}};
  return world_only;
}

namespace {

using detail::reduce_buffers;
using detail::ReduceSpec;

bool shares_memory() {
  return ranks() > 1 && detail::shared_memory_mode() != detail::SharedMemoryMode::kOff;
}

OperationStats carried(Transport transport) {
  return world().comm_stats().of(transport, Purpose::kGradient);
}

std::vector<ReduceOp> ops_of(at::ScalarType dtype) {
  std::vector<ReduceOp> ops{ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct};
  if (at::isFloatingType(dtype)) ops.push_back(ReduceOp::kAvg);
  return ops;
}

// Lines of /proc/self/maps that are shared memory of accel.
int mappings() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);)
    if (contains(line, "memfd:accel") || contains(line, "/dev/shm/accel.")) ++count;
  return count;
}

int files_in_dev_shm() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    if (entry.path().filename().string().starts_with("accel.")) ++count;
  return count;
}

}  // namespace

TEST_CASE("a buffer is reduced in every dtype, with every operation and length, at once and in the background") {
  for (const at::ScalarType dtype : kDtypes)
    for (const ReduceOp op : ops_of(dtype))
      for (const std::int64_t numel : {0, 2, 18, 5002, 300002}) {
        if (numel > 10000 && dtype != at::kFloat && dtype != at::kHalf) continue;
        const at::Tensor like = at::zeros({numel}, dtype);
        const auto buffer = reduce_buffers({like}, world()).front();
        for (const bool background : {false, true, false}) {
          INFO("dtype ", c10::toString(dtype), " op ", static_cast<int>(op), " numel ", numel);
          buffer->flat().copy_(values_of(rank(), like, op));
          const ReduceSpec spec{.op = op, .purpose = Purpose::kGradient};
          if (background) {
            buffer->start(spec, world(), {});
            buffer->wait();
          } else {
            buffer->run(spec, world(), {});
          }
          CHECK(at::equal(buffer->flat(), reduced(like, op, ranks())));
        }
      }
}

TEST_CASE("a buffer of complex numbers is reduced in the memory that its parts share") {
  for (const at::ScalarType dtype : {at::kComplexFloat, at::kComplexDouble})
    for (const std::int64_t numel : {0, 1, 5002, 300002}) {
      const at::Tensor like = at::zeros({numel}, dtype);
      const auto buffers = reduce_buffers({like, at::zeros({3})}, world());
      for (const bool background : {false, true}) {
        INFO("dtype ", c10::toString(dtype), " numel ", numel);
        const at::Tensor real = values_of(rank(), at::real(like));
        buffers[0]->flat().copy_(at::complex(real, 3.0 * real));
        const OperationStats before = carried(Transport::kShared);
        const ReduceSpec spec{.op = ReduceOp::kSum, .factor = 0.5, .purpose = Purpose::kGradient};
        if (background) {
          buffers[0]->start(spec, world(), {});
          buffers[0]->wait();
        } else {
          buffers[0]->run(spec, world(), {});
        }
        const at::Tensor sum = reduced(at::real(like), ReduceOp::kSum, ranks());
        CHECK(at::equal(buffers[0]->flat(), at::complex(sum, 3.0 * sum) * 0.5));
        const bool shares = ranks() > 1 && carried(Transport::kMpi).bytes == 0;
        CHECK(carried(Transport::kShared).bytes - before.bytes == (shares ? like.nbytes() : 0));
      }
    }
}

TEST_CASE("sums are added in order of rank: equal on all ranks and in every repeat, to the bit") {
  const auto of_rank = [](int r) {
    at::Generator generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(r + 5));
    return at::randn({100003}, generator);
  };
  const auto buffer = reduce_buffers({at::zeros({100003})}, world()).front();
  at::Tensor first;
  for (int repeat = 0; repeat < 20; ++repeat) {
    buffer->flat().copy_(of_rank(rank()));
    buffer->run({.op = ReduceOp::kSum, .purpose = Purpose::kGradient}, world(), {});
    if (repeat == 0) first = buffer->flat().clone();
    CHECK(at::equal(buffer->flat(), first));
  }
  CHECK(same_on_all_ranks(first));
  at::Tensor in_order = of_rank(0);
  for (int r = 1; r < ranks(); ++r) in_order += of_rank(r);
  if (shares_memory() || ranks() <= 2) CHECK(at::equal(first, in_order));
}

TEST_CASE("several buffers are under way at once, and waited for in any order") {
  std::vector<at::Tensor> flats;
  for (int each = 0; each < 6; ++each)
    flats.push_back(at::zeros({1 + each * 30011}, each % 2 ? at::kFloat : at::kDouble));
  const auto buffers = reduce_buffers(flats, world());
  std::mt19937 random(static_cast<unsigned>(rank()));
  for (int window = 0; window < 60; ++window) {
    for (std::size_t each = 0; each < buffers.size(); ++each) {
      buffers[each]->flat().fill_(mine() + window + static_cast<double>(each));
      for (unsigned turn = random() % 20000; turn > 0; --turn) std::atomic_signal_fence(std::memory_order_seq_cst);
      buffers[each]->start({.op = ReduceOp::kAvg, .purpose = Purpose::kGradient}, world(), {});
    }
    for (std::size_t each = buffers.size(); each-- > 0;) {
      buffers[each]->wait();
      const at::Tensor wanted =
          at::full_like(buffers[each]->flat(), mean_of_ranks() + window + static_cast<double>(each));
      CHECK(at::allclose(buffers[each]->flat(), wanted, 1e-6));
    }
  }
}

TEST_CASE("comm_stats tells what shared memory carried from what MPI carried") {
  const auto buffer = reduce_buffers({at::ones({1000})}, world()).front();
  const OperationStats shared = carried(Transport::kShared);
  const OperationStats mpi = carried(Transport::kMpi);
  const OperationStats all = world().comm_stats().of(Purpose::kGradient);
  buffer->run({.op = ReduceOp::kSum, .purpose = Purpose::kGradient}, world(), {});
  CHECK(carried(Transport::kShared).bytes - shared.bytes == (shares_memory() ? 4000 : 0));
  CHECK(carried(Transport::kShared).calls - shared.calls == (shares_memory() ? 1 : 0));
  CHECK(carried(Transport::kMpi).bytes - mpi.bytes == (shares_memory() ? 0 : sent(4000)));
  CHECK(world().comm_stats().of(Purpose::kGradient).bytes - all.bytes == sent(4000));
}

TEST_CASE("what a rank has no room for goes through MPI on all ranks, with the same result") {
  if (rank() == ranks() - 1) ::setenv("ACCEL_SHARED_MEMORY_LIMIT", "1", 1);
  const auto large = reduce_buffers({at::full({1 << 19}, mine())}, world()).front();
  const auto small = reduce_buffers({at::full({1 << 10}, mine())}, world()).front();
  ::unsetenv("ACCEL_SHARED_MEMORY_LIMIT");
  const OperationStats shared = carried(Transport::kShared);
  large->run({.op = ReduceOp::kAvg, .purpose = Purpose::kGradient}, world(), {});
  // As any tensor: by way of the stage.
  CHECK((large->flat() == mean_of_ranks()).all().item<bool>());
  small->run({.op = ReduceOp::kAvg, .purpose = Purpose::kGradient}, world(), {});
  CHECK((small->flat() == mean_of_ranks()).all().item<bool>());
  CHECK(carried(Transport::kShared).calls - shared.calls == (shares_memory() ? 2 : 0));
}

TEST_CASE("what a window gathered before its buckets had a place moves along") {
  Accelerator accelerator({.gradient_accumulation_steps = 2});
  Probe probe;
  torch::optim::SGD sgd(probe->parameters(), 1.0);
  auto [model, optimizer] = accelerator.prepare(probe, sgd);
  for (int window = 0; window < 2; ++window) {
    for (int micro = 0; micro < 2; ++micro) {
      const auto guard = accelerator.accumulate(model);
      accelerator.backward(model->loss({mine() + micro}));
      if (micro == 0) CHECK(differs_between_ranks(model->w.grad()));
      if (micro == 1) CHECK(same_on_all_ranks(model->w.grad()));
      optimizer.step();
      optimizer.zero_grad();
    }
  }
  CHECK(probe->value() == -2.0 * (mean_of_ranks() + 0.5));
}

TEST_CASE("two accelerators at once, with windows that overlap, do not see each other") {
  Accelerator one({.gradient_accumulation_steps = 2});
  Accelerator two({.gradient_accumulation_steps = 3});
  Probe a;
  Probe b;
  torch::optim::SGD sgd_a(a->parameters(), 1.0);
  torch::optim::SGD sgd_b(b->parameters(), 1.0);
  auto [model_a, optimizer_a] = one.prepare(a, sgd_a);
  auto [model_b, optimizer_b] = two.prepare(b, sgd_b);
  for (int micro = 0; micro < 6; ++micro) {
    const auto guard_a = one.accumulate(model_a);
    const auto guard_b = two.accumulate(model_b);
    one.backward(model_a->loss({mine()}));
    two.backward(model_b->loss({2.0 * mine()}));
    optimizer_a.step();
    optimizer_b.step();
    optimizer_a.zero_grad();
    optimizer_b.zero_grad();
  }
  CHECK(a->value() == doctest::Approx(-3.0 * mean_of_ranks()).epsilon(1e-6));
  CHECK(b->value() == doctest::Approx(-4.0 * mean_of_ranks()).epsilon(1e-6));
}

TEST_CASE("preparing and forgetting two hundred times leaves nothing behind") {
  Accelerator accelerator;
  const int before = mappings();
  for (int time = 0; time < 200; ++time) {
    auto net = std::make_shared<torch::nn::LinearImpl>(30, 20);
    accelerator.prepare(net);
    {
      const auto guard = accelerator.accumulate(net, {.last = true});
      accelerator.backward(net->forward(at::ones({2, 30})).sum() * mine());
    }
    CHECK(net->bias.grad()[0].item<double>() == doctest::Approx(2.0 * mean_of_ranks()));
    accelerator.free_memory();
  }
  accelerator.wait_for_everyone();
  // The background thread may still hold the last task for a moment.
  CHECK(mappings() <= before + 2 * ranks());
  CHECK(files_in_dev_shm() == 0);
}

TEST_CASE("an accelerator that is gone has unmapped what it shared") {
  const int before = mappings();
  for (int time = 0; time < 30; ++time) {
    Accelerator accelerator;
    Probe probe;
    accelerator.prepare(probe);
    const auto guard = accelerator.accumulate(probe, {.last = true});
    accelerator.backward(probe->loss({mine()}));
    CHECK(gradient_of(probe->w) == mean_of_ranks());
  }
  barrier();
  CHECK(mappings() <= before + 2 * ranks() + 2);
}

TEST_CASE("many steps of a model with many buckets train as one rank on all batches would") {
  Accelerator accelerator({.first_bucket_bytes = 64, .bucket_bytes = 700});
  const auto train = [&](bool alone) {
    at::manual_seed(3);
    auto net = std::make_shared<torch::nn::LinearImpl>(8, 8);
    auto second = std::make_shared<torch::nn::LinearImpl>(8, 4);
    net->to(at::kDouble);
    second->to(at::kDouble);
    net->register_module("second", second);
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    const auto loss_of = [&](int r, int step) {
      at::Generator generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(100 * step + r));
      return second->forward(net->forward(at::randn({5, 8}, generator, at::TensorOptions(at::kDouble))).tanh())
          .pow(2)
          .mean();
    };
    if (alone) {
      for (int step = 0; step < 30; ++step) {
        at::Tensor loss = at::zeros({}, at::kDouble);
        for (int r = 0; r < ranks(); ++r) loss = loss + loss_of(r, step) / ranks();
        sgd.zero_grad();
        loss.backward();
        sgd.step();
      }
    } else {
      auto [model, optimizer] = accelerator.prepare(net, sgd);
      for (int step = 0; step < 30; ++step) {
        const auto guard = accelerator.accumulate(model, {.last = true});
        accelerator.backward(loss_of(rank(), step));
        optimizer.step();
        optimizer.zero_grad();
      }
    }
    std::vector<at::Tensor> flat;
    for (const auto& parameter : net->parameters()) flat.push_back(parameter.detach().flatten());
    return at::cat(flat);
  };
  const at::Tensor together = train(false);
  CHECK(same_on_all_ranks(together));
  CHECK(at::allclose(together, train(true), 1e-6, 1e-12));
}

}  // namespace accel::test
