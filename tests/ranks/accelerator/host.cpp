// A host program that owns MPI, at the level argv[1] names (single, multiple), and trains with accel:
//   train   all ranks train; their weights, bit by bit, are printed at the end
//   apart   half of the ranks train, the others have traffic of their own; then the host sends the weights to all
#include <accel/accelerator.hpp>
#include <accel/interop.hpp>

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include <cstdio>
#include <cstring>
#include <string>

namespace {

int world_rank = 0;
int world_size = 1;
int failures = 0;

void expect(bool good, const char* what) {
  if (good) return;
  ++failures;
  std::fprintf(stderr, "[rank %d] failed: %s\n", world_rank, what);
}

torch::nn::Sequential make_net() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(4, 300), torch::nn::Tanh(), torch::nn::Linear(300, 2));
}

// 11 micro-batches in windows of three, the last one short; many small buckets, so that there is something to overlap.
void train(const accel::Group& group, torch::nn::Sequential& net) {
  accel::Accelerator accelerator(
      {.gradient_accumulation_steps = 3, .group = group, .first_bucket_bytes = 64, .bucket_bytes = 2048});
  torch::optim::AdamW adamw(net->parameters(), 1e-2);
  auto [model, optimizer] = accelerator.prepare(net, adamw);
  for (int micro = 0; micro < 11; ++micro) {
    const auto guard = accelerator.accumulate(model, {.last = micro == 10});
    auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(100 * micro + group.rank()));
    const auto x = at::randn({8, 4}, generator);
    accelerator.backward(torch::nn::functional::mse_loss(model->forward(x), x.narrow(1, 0, 2).sin()));
    optimizer.step();
    optimizer.zero_grad();
  }
  expect(optimizer.steps() == 4, "four windows closed");
  const accel::OperationStats gradients = accelerator.comm_stats().of(accel::Purpose::kGradient);
  const std::uint64_t bytes = sizeof(float) * (4 * 300 + 300 + 300 * 2 + 2);
  expect(gradients.bytes == (group.size() > 1 ? 4 * bytes : 0), "each window's gradients are sent once");
}

// Messages round a ring with all the tags that there are, and sums: what comes is what was sent.
void simulate(MPI_Comm own) {
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(own, &rank);
  MPI_Comm_size(own, &size);
  for (int step = 0; step < 300; ++step) {
    const int mine = 1000 * step + rank;
    int got = -1;
    MPI_Sendrecv(&mine, 1, MPI_INT, (rank + 1) % size, step % 7, &got, 1, MPI_INT, (rank + size - 1) % size, step % 7,
                 own, MPI_STATUS_IGNORE);
    expect(got == 1000 * step + (rank + size - 1) % size, "the simulation receives what was sent");
    int sum = 1;
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, own);
    expect(sum == size, "the simulation's sums are right");
  }
}

void print_weights(const torch::nn::Sequential& net) {
  for (const auto& parameter : net->parameters()) {
    std::uint64_t hash = 14695981039346656037ULL;
    const auto* bytes = static_cast<const unsigned char*>(parameter.const_data_ptr());
    for (std::size_t at = 0; at < parameter.nbytes(); ++at) hash = (hash ^ bytes[at]) * 1099511628211ULL;
    std::printf("weights %016llx\n", static_cast<unsigned long long>(hash));
  }
}

void run_apart(torch::nn::Sequential& net) {
  const int trainers = std::max(1, world_size / 2);
  const bool trains = world_rank < trainers;
  MPI_Comm part = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, trains ? 0 : 1, 0, &part);
  if (trains) {
    const accel::Group group = accel::interop::group_from_mpi(part);
    expect(group.size() == trainers, "the group has the trainers only");
    train(group, net);
  } else {
    simulate(part);
  }
  // The host's own broadcast, on its own communicator, to ranks that never heard of accel.
  for (const auto& parameter : net->parameters()) {
    at::Tensor data = parameter.detach();
    const at::Tensor before = data.clone();
    MPI_Bcast(data.mutable_data_ptr(), static_cast<int>(data.numel()), MPI_FLOAT, 0, MPI_COMM_WORLD);
    expect(trains == data.equal(before), "only the ranks that did not train get something new");
  }
  MPI_Comm_free(&part);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string level = argc > 1 ? argv[1] : "";
  const std::string mode = argc > 2 ? argv[2] : "";
  int provided = MPI_THREAD_SINGLE;
  if (level == "multiple")
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  else
    MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  expect((provided == MPI_THREAD_MULTIPLE) == (level == "multiple"), "MPI provides the level of this test");
  auto net = make_net();
  if (mode == "apart")
    run_apart(net);
  else
    train(accel::interop::group_from_mpi(MPI_COMM_WORLD), net);
  int all = 0;
  MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  int finalized = 1;
  MPI_Finalized(&finalized);
  if (finalized != 0) all = 1;
  if (world_rank == 0 && all == 0) print_weights(net);
  if (world_rank == 0) std::printf(all == 0 ? "as expected\n" : "failed\n");
  MPI_Finalize();
  return all == 0 ? 0 : 1;
}
