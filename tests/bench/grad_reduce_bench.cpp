// One bucket of gradients, averaged over the ranks of one host: in the memory they share, in accel's MPI path, and by a
// plain MPI_Allreduce, alternating in one run. Started by mpirun; for each size in KiB it is given, a line of JSON with
// milliseconds: shared_ms, path_ms, mpi_ms, and memory_ms, in which the ranks together read and write two arrays of
// that size once.
//   mpirun -n 2 grad_reduce_bench 20 1024 25600 65536
#include "comm/mpi_buffers.hpp"
#include "comm/reduce_buffer.hpp"

#include <accel/collectives.hpp>
#include <accel/process.hpp>

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <vector>

namespace {

using namespace accel;
using namespace accel::detail;

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// Mean of `calls` calls in milliseconds: the slowest rank's, since the others wait for it. Gradients have just been
// written when they are reduced, and so is what is reduced here.
double time_calls(int calls, const at::Tensor& data, const std::function<void()>& call) {
  data.fill_(1.0);
  MPI_Barrier(MPI_COMM_WORLD);
  const double began = MPI_Wtime();
  for (int i = 0; i < calls; ++i) call();
  double took = (MPI_Wtime() - began) / calls * 1e3;
  MPI_Allreduce(MPI_IN_PLACE, &took, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return took;
}

void read_and_write(float* __restrict a, float* __restrict b, std::int64_t numel) {
  for (std::int64_t i = 0; i < numel; ++i) a[i] = b[i] = (a[i] + b[i]) * 0.5F;
}

void measure(std::int64_t kib, MPI_Comm communicator) {
  const Group& group = world();
  const std::int64_t numel = kib * 256;
  const std::int64_t share = numel / group.size();
  const auto buffer = reduce_buffers({at::ones({numel})}, group).front();
  at::Tensor plain = at::ones({numel});
  at::Tensor path = at::ones({numel});
  at::Tensor both = at::ones({2, share});
  const Ring ring{communicator, group.rank(), group.size()};
  struct Way {
    at::Tensor data;
    std::function<void()> call;
  };
  const std::vector<Way> ways{
      {buffer->flat(), [&] { buffer->run({.op = ReduceOp::kAvg, .purpose = Purpose::kGradient}, group, {}); }},
      {path,
       [&] {
         all_reduce_buffer(path.mutable_data_ptr(), numel, {c10::kFloat, ReduceOp::kAvg, 1.0}, ring);
       }},
      {plain,
       [&] {
         MPI_Allreduce(MPI_IN_PLACE, plain.mutable_data_ptr(), static_cast<int>(numel), MPI_FLOAT, MPI_SUM,
                       communicator);
       }},
      {both, [&] { read_and_write(both[0].data_ptr<float>(), both[1].data_ptr<float>(), share); }}};
  // One call where it is long enough to be timed: a second would find what the first left in cache.
  const int calls = kib >= 1024 ? 1 : static_cast<int>((16 << 10) / kib);
  std::vector<std::vector<double>> times(ways.size());
  for (int round = 0; round < (calls == 1 ? 31 : 12); ++round)
    for (std::size_t way = 0; way < ways.size(); ++way) {
      const double took = time_calls(calls, ways[way].data, ways[way].call);
      if (round > 0) times[way].push_back(took);
    }
  if (buffer->flat()[numel / 2].item<float>() != 1.0F) std::abort();
  if (group.rank() == 0)
    std::printf("{\"kib\": %lld, \"shared_ms\": %.5f, \"path_ms\": %.5f, \"mpi_ms\": %.5f, \"memory_ms\": %.5f}\n",
                static_cast<long long>(kib), median(times[0]), median(times[1]), median(times[2]), median(times[3]));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    (void)world();
    MPI_Comm communicator = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &communicator);
    for (int word = 1; word < argc; ++word) measure(std::atoll(argv[word]), communicator);
    MPI_Comm_free(&communicator);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "grad_reduce_bench: %s\n", error.what());
    job_abort(1, "grad_reduce_bench failed");
  }
}
