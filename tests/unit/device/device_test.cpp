#include <accel/device.hpp>
#include <accel/error.hpp>

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <doctest/doctest.h>

using namespace accel;

namespace {

Process rank_of(int rank, int local_rank) {
  Process process;
  process.rank = rank;
  process.size = 8;
  process.local_rank = local_rank;
  process.local_size = 4;
  return process;
}

}  // namespace

TEST_CASE("the CPU is given to those who ask for it") {
  CHECK(device_for(rank_of(3, 1), c10::Device(c10::kCPU)) == c10::Device(c10::kCPU));
}

TEST_CASE("on a host without CUDA a rank gets the CPU, and asking for CUDA says what is missing") {
  if (at::hasCUDA()) return;
  CHECK(device_for(rank_of(3, 1)) == c10::Device(c10::kCPU));
  CHECK_THROWS_WITH_AS(device_for(rank_of(3, 1), c10::Device(c10::kCUDA)),
                       doctest::Contains("accel[3/8] device_for: expected a CUDA device, found "), UsageError);
  CHECK_THROWS_AS(device_for(rank_of(3, 1), c10::Device(c10::kCUDA, 1)), UsageError);
}

TEST_CASE("devices that gradients cannot be reduced on are refused") {
  CHECK_THROWS_WITH_AS(device_for(rank_of(0, 0), c10::Device(c10::kMeta)),
                       doctest::Contains("expected a CPU or CUDA device, found meta"), UsageError);
}

TEST_CASE("the same seed gives the same numbers, another one others") {
  set_seed(7);
  const at::Tensor first = at::rand({8});
  set_seed(7);
  CHECK(at::equal(first, at::rand({8})));
  set_seed(8);
  CHECK_FALSE(at::equal(first, at::rand({8})));
}

TEST_CASE("case 86: the seed of rank 0 is the same with device_specific") {
  set_seed(7);
  const at::Tensor first = at::rand({8});
  set_seed(7, {.device_specific = true});
  CHECK(at::equal(first, at::rand({8})));
}

TEST_CASE("deterministic algorithms are asked for only where wanted") {
  set_seed(1);
  CHECK_FALSE(at::globalContext().deterministicAlgorithms());
  set_seed(1, {.deterministic = true});
  CHECK(at::globalContext().deterministicAlgorithms());
  at::globalContext().setDeterministicAlgorithms(false, false);
}
