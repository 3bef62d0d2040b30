// A rank that stops, dies or throws in the midst of reducing gradients; the test looks at what the others print.
//   lost_in_backward stop|kill|throw before|first|last      where: before its backward, at its first or last bucket
#include <accel/accelerator.hpp>
#include <accel/error.hpp>
#include <accel/process.hpp>

#include <ATen/ATen.h>

#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct Place {
  std::string how;
  std::string where;
};

void fall(const Place& place) {
  if (place.how == "stop") std::raise(SIGSTOP);
  if (place.how == "kill") std::raise(SIGKILL);
  throw std::runtime_error("fell");
}

// Survivors meet without the one that is lost, so that all have spoken before the job ends.
[[noreturn]] void end_job(const Place& place, int survivors) {
  at::Tensor word = at::zeros({1});
  // mpirun was told to go on without a rank that died; MPI_Abort does not end such a job.
  if (place.how == "kill") ::_exit(3);
  if (accel::world().rank() == 0) {
    for (int rank = 1; rank < survivors; ++rank) accel::recv(word, rank);
    accel::job_abort(3, "all survivors have spoken");
  }
  accel::send(word, 0);
  accel::recv(word, 0);  // until the job ends
  std::abort();
}

int train(const Place& place) {
  const accel::Group group = accel::world();
  const bool falls = group.rank() == group.size() - 1;
  accel::Accelerator accelerator({.comm_timeout = std::chrono::milliseconds(700),
                                  .on_failure = accel::OnFailure::kThrow,
                                  .first_bucket_bytes = 4,
                                  .bucket_bytes = 4});
  std::vector<at::Tensor> weights;
  for (int each = 0; each < 4; ++each) weights.push_back(at::full({3}, 1.0).requires_grad_(true));
  const auto model = accelerator.prepare(
      accel::parameters({{"a", weights[0]}, {"b", weights[1]}, {"c", weights[2]}, {"d", weights[3]}}));
  const auto passes = std::make_shared<int>(0);
  if (falls && place.where != "before")
    weights[place.where == "first" ? 3 : 0].register_hook([&place, passes](const at::Tensor& gradient) {
      if (++*passes == 3) fall(place);
      return gradient;
    });
  for (int step = 0; step < 5; ++step) {
    const auto guard = accelerator.accumulate(model, {.last = true});
    at::Tensor loss = at::zeros({});
    for (const at::Tensor& weight : weights) loss = (loss + weight).sum();
    if (falls && place.where == "before" && step == 2) fall(place);
    accelerator.backward(loss);
    if (step == 4) std::printf("rank %d came to the end\n", group.rank());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const Place place{argv[1], argv[2]};
  const int size = accel::world().size();
  try {
    return train(place);
  } catch (const accel::AbandonedError& error) {
    std::printf("abandoned on rank %d: %s\n", accel::world().rank(), error.what());
    return 0;
  } catch (const accel::Error& error) {
    std::printf("caught on rank %d: %s\n", accel::world().rank(), error.what());
    std::fflush(stdout);
    end_job(place, size - 1);
  } catch (const std::exception& error) {
    std::printf("fell on rank %d: %s\n", accel::world().rank(), error.what());
    return 0;
  }
}
