// comm_stats against MPI itself: the wrappers below stand before MPI's functions and count what they are really given.
#include "support/torch_doctest.hpp"

#include "comm/ops.hpp"
#include "runtime/mpi.hpp"
#include "runtime/shared_memory.hpp"

#include <accel/collectives.hpp>

#include <ATen/ATen.h>

#include <sched.h>

#include <atomic>

namespace {

std::atomic<std::uint64_t> reduced{0};
std::atomic<std::uint64_t> broadcasted{0};
std::atomic<std::uint64_t> gathered{0};
std::atomic<std::uint64_t> scattered{0};
std::atomic<std::uint64_t> exchanged{0};
std::atomic<std::uint64_t> sent{0};
std::atomic<std::uint64_t> received{0};
std::atomic<std::uint64_t> rooted{0};  // what MPI_Reduce, MPI_Gatherv and MPI_Scatter are given

std::uint64_t bytes(long count, MPI_Datatype type) {
  int size = 0;
  PMPI_Type_size(type, &size);
  return static_cast<std::uint64_t>(count) * static_cast<std::uint64_t>(size);
}

int tool_level = -1;  // what the tool interface was asked for

// All ranks begin on one processor, so that the session finds more ranks than cores.
cpu_set_t begin_on_one_processor() {
  cpu_set_t all;
  CPU_ZERO(&all);
  sched_getaffinity(0, sizeof(all), &all);
  int first = 0;
  while (!CPU_ISSET(first, &all)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  sched_setaffinity(0, sizeof(one), &one);
  return all;
}
const cpu_set_t all_processors = begin_on_one_processor();

}  // namespace

extern "C" {

int MPI_T_init_thread(int required, int* provided) {
  tool_level = required;
  return PMPI_T_init_thread(required, provided);
}

int MPI_Allreduce(const void* from, void* to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  reduced += bytes(count, type);
  return PMPI_Allreduce(from, to, count, type, op, comm);
}
int MPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  broadcasted += bytes(count, type);
  return PMPI_Bcast(data, count, type, root, comm);
}
int MPI_Allgather(const void* from, int sends, MPI_Datatype send_type, void* to, int receives, MPI_Datatype type,
                  MPI_Comm comm) {
  gathered += from == MPI_IN_PLACE ? bytes(receives, type) : bytes(sends, send_type);
  return PMPI_Allgather(from, sends, send_type, to, receives, type, comm);
}
int MPI_Allgatherv(const void* from, int sends, MPI_Datatype send_type, void* to, const int* receives,
                   const int* firsts, MPI_Datatype type, MPI_Comm comm) {
  int rank = 0;
  PMPI_Comm_rank(comm, &rank);
  gathered += from == MPI_IN_PLACE ? bytes(receives[rank], type) : bytes(sends, send_type);
  return PMPI_Allgatherv(from, sends, send_type, to, receives, firsts, type, comm);
}
int MPI_Reduce_scatter_block(const void* from, void* to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  int size = 0;
  PMPI_Comm_size(comm, &size);
  scattered += bytes(count, type) * static_cast<std::uint64_t>(size);
  return PMPI_Reduce_scatter_block(from, to, count, type, op, comm);
}
int MPI_Alltoallv(const void* from, const int* sends, const int* firsts, MPI_Datatype send_type, void* to,
                  const int* receives, const int* places, MPI_Datatype type, MPI_Comm comm) {
  int size = 0;
  PMPI_Comm_size(comm, &size);
  for (int rank = 0; rank < size; ++rank) exchanged += bytes(sends[rank], send_type);
  return PMPI_Alltoallv(from, sends, firsts, send_type, to, receives, places, type, comm);
}
int MPI_Alltoall(const void* from, int sends, MPI_Datatype send_type, void* to, int receives, MPI_Datatype type,
                 MPI_Comm comm) {
  int size = 0;
  PMPI_Comm_size(comm, &size);
  exchanged += bytes(sends, send_type) * static_cast<std::uint64_t>(size);
  return PMPI_Alltoall(from, sends, send_type, to, receives, type, comm);
}
int MPI_Reduce(const void* from, void* to, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm) {
  rooted += bytes(count, type);
  return PMPI_Reduce(from, to, count, type, op, root, comm);
}
int MPI_Gatherv(const void* from, int sends, MPI_Datatype send_type, void* to, const int* receives, const int* firsts,
                MPI_Datatype type, int root, MPI_Comm comm) {
  rooted += from == MPI_IN_PLACE ? 0 : bytes(sends, send_type);
  return PMPI_Gatherv(from, sends, send_type, to, receives, firsts, type, root, comm);
}
int MPI_Scatter(const void* from, int sends, MPI_Datatype send_type, void* to, int receives, MPI_Datatype type,
                int root, MPI_Comm comm) {
  int rank = 0;
  int size = 0;
  PMPI_Comm_rank(comm, &rank);
  PMPI_Comm_size(comm, &size);
  rooted += rank == root ? bytes(sends, send_type) * static_cast<std::uint64_t>(size) : bytes(receives, type);
  return PMPI_Scatter(from, sends, send_type, to, receives, type, root, comm);
}
int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
  sent += bytes(count, type);
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}
int MPI_Irecv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request* request) {
  received += bytes(count, type);
  return PMPI_Irecv(data, count, type, from, tag, comm, request);
}

}  // extern "C"

using namespace accel;

namespace {

bool by_mpi() {
  return accel::detail::shared_memory_mode() == accel::detail::SharedMemoryMode::kOff;
}

// What `call` adds to one counter of MPI and to one cell of comm_stats.
template <class Call>
void check_bytes(std::atomic<std::uint64_t>& counter, Operation operation, std::uint64_t expected, Call call) {
  const CommStats before = world().comm_stats();
  const std::uint64_t mpi_before = counter;
  call();
  const CommStats since = world().comm_stats() - before;
  CHECK(since.of(operation, Purpose::kUser).bytes == expected);
  CHECK(since.of(Transport::kMpi, Purpose::kUser).bytes == counter - mpi_before);
  CHECK(since.of(Transport::kShared, Purpose::kUser).bytes == expected - (counter - mpi_before));
  // The others are MPI's in any case.
  const bool staged = operation == Operation::kAllReduce || operation == Operation::kBroadcast ||
                      operation == Operation::kAllGather || operation == Operation::kReduceScatter;
  const bool to_mpi = by_mpi() || !staged;
  CHECK(counter - mpi_before == (to_mpi ? expected : 0));
}

}  // namespace

// Open MPI 4.1 lowers the level of MPI itself to what the tool interface is asked for: threads then corrupt its
// requests.
TEST_CASE("the tool interface is opened at the thread level of MPI") {
  sched_setaffinity(0, sizeof(all_processors), &all_processors);
  int level = 0;
  PMPI_Query_thread(&level);
  CHECK(tool_level == (world().rank() == 0 ? level : -1));
}

TEST_CASE("bytes in comm_stats are the bytes that MPI is given, and those that it is not") {
  const auto size = static_cast<std::uint64_t>(world().size());
  const int rank = world().rank();
  at::Tensor large = at::ones({3'000'001});
  at::Tensor small = at::ones({7});
  at::Tensor rows = at::zeros({world().size(), 1000});
  at::Tensor row = at::ones({1000});
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax})
    check_bytes(reduced, Operation::kAllReduce, 12'000'004, [&] { all_reduce(large, op); });
  check_bytes(reduced, Operation::kAllReduce, 28, [&] { all_reduce_async(small).wait(); });
  check_bytes(broadcasted, Operation::kBroadcast, 12'000'004, [&] { broadcast(large, 0); });
  check_bytes(gathered, Operation::kAllGather, 4000, [&] { all_gather_into(rows, row); });
  check_bytes(scattered, Operation::kReduceScatter, 4000 * size, [&] { reduce_scatter(row, rows); });
  if (rank == 0)
    check_bytes(sent, Operation::kSend, 28, [&] { send(small, 1); });
  else if (rank == 1)
    check_bytes(received, Operation::kReceive, 28, [&] { recv(small, 0); });
  barrier();
}

TEST_CASE("calls with a root, and exchanges, are given to MPI as they are counted") {
  const auto size = static_cast<std::uint64_t>(world().size());
  const int rank = world().rank();
  const int root = world().size() - 1;
  at::Tensor large = at::ones({3'000'001});
  at::Tensor rows = at::ones({world().size(), 1000});
  at::Tensor out = at::zeros_like(rows);
  at::Tensor row = at::zeros({1000});
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax})
    check_bytes(rooted, Operation::kReduce, 12'000'004, [&] { reduce(large, root, op); });
  check_bytes(rooted, Operation::kScatter, rank == root ? 4000 * size : 4000, [&] { scatter(row, rows, root); });
  check_bytes(exchanged, Operation::kAllToAll, 4000 * size, [&] { all_to_all(out, rows); });
  // What these two tell each other of shapes is control, and counted apart.
  const std::uint64_t rooted_before = rooted;
  const CommStats before = world().comm_stats();
  static_cast<void>(gather(at::ones({rank + 1, 5}), root));
  const auto given = static_cast<std::uint64_t>(20 * (rank + 1));
  CHECK(rooted - rooted_before == given);
  CHECK((world().comm_stats() - before).of(Operation::kGather, Purpose::kUser).bytes == given);
  const std::uint64_t exchanged_before = exchanged;
  static_cast<void>(all_to_all(std::vector<at::Tensor>(size, at::ones({rank + 1, 5}))));
  CHECK(exchanged - exchanged_before == given * size);
  CHECK((world().comm_stats() - before).of(Operation::kAllToAll, Purpose::kUser).bytes == given * size);
}

TEST_CASE("16-bit sums put half the bytes of float32 on the wire") {
  const std::uint64_t exchanged_before = exchanged;
  const std::uint64_t gathered_before = gathered;
  const std::uint64_t reduced_before = reduced;
  at::Tensor half = at::ones({100'000}, at::kHalf);
  check_bytes(exchanged, Operation::kAllReduce, 200'000, [&] { all_reduce(half); });
  CHECK(exchanged - exchanged_before == (by_mpi() ? 200'000 : 0));
  CHECK(gathered - gathered_before == (by_mpi() ? 200'000 / static_cast<std::uint64_t>(world().size()) : 0));
  CHECK(reduced == reduced_before);
}

TEST_CASE("tensors without elements reach no data call of MPI") {
  at::Tensor nothing = at::zeros({0});
  check_bytes(reduced, Operation::kAllReduce, 0, [&] { all_reduce(nothing); });
}
