// A host program that owns MPI, at the level argv[1] names; half of its ranks train, the others go on with their own
// traffic. argv[2] "lost": one rank of the group never comes.
#include <accel/collectives.hpp>
#include <accel/error.hpp>
#include <accel/interop.hpp>

#include <ATen/ATen.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

int failures = 0;
int world_rank = 0;

void expect(bool good, const char* what) {
  if (good) return;
  ++failures;
  std::fprintf(stderr, "[rank %d] failed: %s\n", world_rank, what);
}

template <class Failure, class Call>
std::string failure_of(Call call) {
  try {
    call();
  } catch (const Failure& error) {
    return error.what();
  }
  return "no error";
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

void refusals() {
  using accel::UsageError;
  expect(contains(failure_of<UsageError>([] { static_cast<void>(accel::interop::group_from_mpi(MPI_COMM_NULL)); }),
                  "MPI_COMM_NULL"),
         "MPI_COMM_NULL is refused");
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size < 2) return;
  MPI_Comm side = MPI_COMM_NULL;
  MPI_Comm inter = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, 0, &side);
  MPI_Intercomm_create(side, 0, MPI_COMM_WORLD, (world_rank + 1) % 2, 1, &inter);
  expect(contains(failure_of<UsageError>([&] { static_cast<void>(accel::interop::group_from_mpi(inter)); }),
                  "inter-communicator"),
         "an inter-communicator is refused");
  MPI_Comm_free(&inter);
  MPI_Comm_free(&side);
}

// The part of the job that trains: all calls, among the host's own on its communicator.
void train(MPI_Comm communicator) {
  const accel::Group group = accel::interop::group_from_mpi(communicator);
  const int size = group.size();
  at::Tensor mean = at::full({100'000}, 2.0 * group.rank());
  at::Tensor half = at::ones({1001}, at::kHalf);
  for (int step = 0; step < 20; ++step) {
    at::Tensor gradient = mean.clone();
    accel::Work work = accel::all_reduce_async(gradient, accel::ReduceOp::kAvg, group);
    int host_sum = 1;
    if (accel::process().thread_level == accel::ThreadLevel::kMultiple)
      MPI_Allreduce(MPI_IN_PLACE, &host_sum, 1, MPI_INT, MPI_SUM, communicator);
    else
      host_sum = size;
    work.wait();
    expect((gradient == size - 1.0).all().item<bool>(), "averages are exact");
    expect(host_sum == size, "the host's communicator is its own");
  }
  accel::all_reduce(half, accel::ReduceOp::kSum, group);
  expect((half == size).all().item<bool>(), "16-bit sums");
  at::Tensor total = at::ones({9});
  accel::reduce(total, size - 1, accel::ReduceOp::kSum, group);
  expect((total == (group.rank() == size - 1 ? size : 1)).all().item<bool>(), "reduce");
  const auto gathered = accel::gather(at::full({group.rank()}, 2.0), 0, group);
  expect(gathered.size() == static_cast<std::size_t>(group.rank() == 0 ? size : 0), "gather");
  at::Tensor numbers = at::arange(size, at::kInt);
  at::Tensor own = at::zeros({1}, at::kInt);
  accel::scatter_async(own, numbers, 0, group).wait();
  expect(own.item<int>() == group.rank(), "scatter");
  at::Tensor exchanged = at::zeros({size}, at::kInt);
  accel::all_to_all(exchanged, numbers, group);
  expect((exchanged == group.rank()).all().item<bool>(), "all_to_all");
  const accel::Group part = group.split(group.rank() % 2);
  expect(part.size() >= 1, "split works");
  if (size > 1) {
    at::Tensor received = at::zeros({5});
    accel::Work receive = accel::recv_async(received, (group.rank() + size - 1) % size, group);
    accel::Work send = accel::send_async(at::ones({5}), (group.rank() + 1) % size, group);
    receive.wait();
    send.wait();
    expect((received == 1.0).all().item<bool>(), "messages arrive");
  }
  accel::barrier(group);
}

// The other part: traffic that accel must neither see nor wait for.
void simulate(MPI_Comm communicator) {
  int size = 0;
  MPI_Comm_size(communicator, &size);
  for (int step = 0; step < 50; ++step) {
    int sum = 1;
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, communicator);
    expect(sum == size, "the simulation's sums are right");
  }
}

// The host's policy is to throw: rank 0 learns that its peer does not come, at any thread level, and goes on.
void lose_a_peer() {
  const accel::Group group =
      accel::interop::group_from_mpi(MPI_COMM_WORLD, {.timeout = std::chrono::milliseconds(300)});
  at::Tensor tensor = at::ones({3});
  int told = 0;
  if (world_rank == 0) {
    const std::string text =
        failure_of<accel::TimeoutError>([&] { accel::all_reduce(tensor, accel::ReduceOp::kSum, group); });
    expect(contains(text, "no answer for 0.3 s"), text.c_str());
    expect(contains(failure_of<accel::CommError>([&] { accel::barrier(group); }), "no longer"), "the group is dead");
    told = 1;
  }
  MPI_Bcast(&told, 1, MPI_INT, 0, MPI_COMM_WORLD);
  expect(told == 1, "the host's communicator still works");
}

}  // namespace

int main(int argc, char** argv) {
  const bool multiple = argc > 1 && std::string(argv[1]) == "multiple";
  const bool lost = argc > 2 && std::string(argv[2]) == "lost";
  const std::string early =
      failure_of<accel::UsageError>([] { static_cast<void>(accel::interop::group_from_mpi(MPI_COMM_WORLD)); });
  int level = 0;
  if (multiple)
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  else
    MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  expect(contains(early, "MPI to be initialised"), "a call before MPI_Init is refused");
  refusals();
  if (lost) {
    lose_a_peer();
  } else {
    MPI_Comm part = MPI_COMM_NULL;
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const bool trains = world_rank < (size + 1) / 2;
    MPI_Comm_split(MPI_COMM_WORLD, trains ? 0 : 1, 0, &part);
    if (trains)
      train(part);
    else
      simulate(part);
    MPI_Comm_free(&part);  // ours lives on
  }
  int all = 0;
  MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (lost) {
    // A call to the lost peer is still under way: this job does not come to MPI_Finalize.
    std::printf(all == 0 ? "as expected\n" : "failed\n");
    std::fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Abort(MPI_COMM_WORLD, all == 0 ? 0 : 1);
  }
  MPI_Finalize();
  if (world_rank == 0 && all == 0) std::printf("as expected\n");
  return all == 0 ? 0 : 1;
}
