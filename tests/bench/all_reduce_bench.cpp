// accel's all_reduce against plain MPI_Allreduce on the same buffer, alternating in one run. Started by mpirun.
//   all_reduce_bench                a table: sums, averages, asynchronous averages, 4 KB to 64 MB
//   all_reduce_bench --json         the same as one JSON row a line: name, value, unit, peer, peer_value, ratio
//   all_reduce_bench 1 4 25 64      sums of these MiB only, a JSON line each: mib, accel_ms, mpi_ms
// A ratio above 1 means that accel is faster.
#include <accel/collectives.hpp>

#include <ATen/ATen.h>

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace {

using namespace accel;

struct Case {
  std::string name;
  std::int64_t bytes;
  std::function<void(at::Tensor&)> ours;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// Mean of `calls` calls in microseconds: the slowest rank's, since the others wait for it.
double time_calls(int calls, const std::function<void()>& call) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double began = MPI_Wtime();
  for (int i = 0; i < calls; ++i) call();
  double took = (MPI_Wtime() - began) / calls * 1e6;
  MPI_Allreduce(MPI_IN_PLACE, &took, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return took;
}

std::string size_name(std::int64_t bytes) {
  if (bytes >= 1 << 20) return std::to_string(bytes >> 20) + "MB";
  return std::to_string(bytes >> 10) + "KB";
}

Case sum_of(std::int64_t bytes) {
  return {"all_reduce_sum_" + size_name(bytes), bytes, [](at::Tensor& tensor) { all_reduce(tensor); }};
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::int64_t bytes : {4L << 10, 64L << 10, 1L << 20, 4L << 20, 25L << 20, 64L << 20}) {
    const std::string size = size_name(bytes);
    all.push_back(sum_of(bytes));
    all.push_back({"all_reduce_avg_" + size, bytes, [](at::Tensor& tensor) { all_reduce(tensor, ReduceOp::kAvg); }});
    all.push_back({"all_reduce_async_avg_" + size, bytes,
                   [](at::Tensor& tensor) { all_reduce_async(tensor, ReduceOp::kAvg).wait(); }});
  }
  return all;
}

enum class Output { kTable, kRows, kSizes };

void report(const Case& one, double ours, double plain, Output output) {
  if (world().rank() != 0) return;
  if (output == Output::kSizes)
    std::printf("{\"mib\": %lld, \"accel_ms\": %.4f, \"mpi_ms\": %.4f}\n", static_cast<long long>(one.bytes >> 20),
                ours / 1e3, plain / 1e3);
  else if (output == Output::kRows)
    std::printf(
        "{\"name\": \"%s\", \"value\": %.2f, \"unit\": \"us\", \"peer\": \"MPI_Allreduce\", "
        "\"peer_value\": %.2f, \"ratio\": %.3f}\n",
        one.name.c_str(), ours, plain, plain / ours);
  else
    std::printf("%-28s %12.2f us   MPI_Allreduce %12.2f us   x %.2f\n", one.name.c_str(), ours, plain, plain / ours);
  std::fflush(stdout);
}

void measure(const Case& one, int runs, Output output) {
  // Zeros stay zeros under any number of sums: no overflow, no denormals.
  at::Tensor tensor = at::zeros({one.bytes / 4});
  float* const data = tensor.mutable_data_ptr<float>();
  const int numel = static_cast<int>(tensor.numel());
  const int calls = static_cast<int>(std::clamp<std::int64_t>((8L << 20) / one.bytes, 1, 500));
  const auto ours = [&] { one.ours(tensor); };
  const auto plain = [&] { MPI_Allreduce(MPI_IN_PLACE, data, numel, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); };
  std::vector<double> our_times;
  std::vector<double> plain_times;
  time_calls(calls, ours);  // warm
  time_calls(calls, plain);
  for (int run = 0; run < runs; ++run) {
    our_times.push_back(time_calls(calls, ours));
    plain_times.push_back(time_calls(calls, plain));
  }
  report(one, median(our_times), median(plain_times), output);
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kRuns = 9;
  Output output = Output::kTable;
  std::vector<Case> chosen;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--json") {
      output = Output::kRows;
    } else {
      output = Output::kSizes;
      chosen.push_back(sum_of(std::int64_t{std::stoi(word)} << 20));
    }
  }
  if (world().size() < 2) {
    std::fprintf(stderr, "all_reduce_bench: start it with mpirun -n 2\n");
    return 1;
  }
  if (chosen.empty()) chosen = cases();
  for (const Case& one : chosen) measure(one, kRuns, output);
  return 0;
}
