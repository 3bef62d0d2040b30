// Programs that end because a peer never comes; the test looks at what they print. argv[1]: throw or abort.
#include <accel/collectives.hpp>
#include <accel/error.hpp>

#include <ATen/ATen.h>

#include <cstdio>
#include <string>

int main(int argc, char** argv) {
  const bool throws = argc > 1 && std::string(argv[1]) == "throw";
  const accel::Group group =
      accel::world().duplicate({.timeout = std::chrono::milliseconds(300),
                                .on_failure = throws ? accel::OnFailure::kThrow : accel::OnFailure::kAbortJob});
  if (group.rank() != 0) {
    // Waits for rank 0 as well, so that it is the call of rank 0 that runs out of time first.
    at::Tensor word = at::zeros({1});
    if (!throws) accel::recv(word, 0);
    return 0;
  }
  at::Tensor tensor = at::ones({3});
  try {
    accel::all_reduce(tensor, accel::ReduceOp::kSum, group);
    std::printf("no error\n");
  } catch (const accel::TimeoutError& error) {
    std::printf("caught: %s\n", error.what());
  }
  return 0;
}
