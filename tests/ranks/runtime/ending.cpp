// One way for a job to end, chosen by the command line; job_ends.py runs it and looks at what is left.
//   ending owned|borrowed <case>
// Rank 1 is the one that misbehaves; the others wait for it in a barrier.

#include "runtime/mpi.hpp"
#include "runtime/session.hpp"

#include <accel/process.hpp>

#include <sys/wait.h>
#include <unistd.h>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

using accel::detail::BlockingCall;
using accel::detail::Session;

struct Boom : std::runtime_error {
  using std::runtime_error::runtime_error;
};

MPI_Comm world = MPI_COMM_NULL;

int wait_for_all() {
  MPI_Barrier(world);
  return 0;
}

int forked_child_exits(int) {
  const pid_t child = ::fork();
  if (child == 0) std::exit(5);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 5 ? wait_for_all() : 6;
}

int silent_peer(int rank) {
  if (rank == 1) ::pause();
  const accel::detail::CallFacts facts{
      .operation = "all_reduce", .number = 118, .bytes = 26214400, .site = {rank, accel::process().size}};
  const auto policy = Session::get().failure_policy(accel::OnFailure::kDefault);
  const BlockingCall call(facts, std::chrono::milliseconds(500), policy);
  return wait_for_all();
}

int closing(int) {
  for (const char* name : {"first", "second"})
    Session::get().at_close([name] {
      // MPI works here, among all ranks.
      MPI_Barrier(world);
      if (accel::process().rank == 0) std::printf("closing the %s\n", name);
    });
  return 0;
}

int late(int rank) {
  // Only a lower bound: the others have to bear the wait.
  if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(700));
  return 0;
}

int thrown_in_thread(int rank) {
  if (rank == 1) std::thread([] { throw Boom("in a thread"); }).join();
  return wait_for_all();
}

int exit_in_unwinding(int rank) {
  // Not known to the compiler, which would see that the handler below is never reached and leave it out.
  static volatile bool leave = true;
  struct Leaves {
    ~Leaves() {
      if (leave) std::exit(0);
    }
  };
  if (rank != 1) return wait_for_all();
  try {
    const Leaves leaves;
    throw Boom("on its way");
  } catch (const Boom&) {
  }
  return 0;
}

int text_in_buffer(int rank) {
  if (rank != 1) return wait_for_all();
  std::printf("printed before the end");
  return 3;
}

int run(const std::string& name, int rank) {
  const bool bad = rank == 1;
  const std::map<std::string, std::function<int()>> cases = {
      {"ok", [] { return 0; }},
      {"throw", [&] { return bad ? throw Boom("no more data") : wait_for_all(); }},
      {"throw_number", [&] { return bad ? throw 42 : wait_for_all(); }},
      {"throw_in_thread", [&] { return thrown_in_thread(rank); }},
      {"status", [&] { return bad ? 7 : wait_for_all(); }},
      {"all_status", [&] { return 9; }},
      {"early", [&] { return bad ? 0 : wait_for_all(); }},
      {"late", [&] { return late(rank); }},
      {"killed", [&] { return bad ? std::raise(SIGKILL) : wait_for_all(); }},
      {"segfault", [&] { return bad ? std::raise(SIGSEGV) : wait_for_all(); }},
      {"_exit", [&] { return bad ? ::_exit(7), 0 : wait_for_all(); }},
      {"abort", [&] { return bad ? accel::job_abort(5, "enough"), 0 : wait_for_all(); }},
      {"fork", [&] { return forked_child_exits(rank); }},
      {"silent", [&] { return silent_peer(rank); }},
      {"closing", [&] { return closing(rank); }},
      {"unwinding", [&] { return exit_in_unwinding(rank); }},
      {"buffer", [&] { return text_in_buffer(rank); }},
  };
  return cases.at(name)();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const bool borrowed = std::string(argv[1]) == "borrowed";
  if (borrowed) MPI_Init(&argc, &argv);
  const accel::Process& me = accel::process();
  MPI_Comm_dup(MPI_COMM_WORLD, &world);
  const int status = run(argv[2], me.rank);
  if (borrowed && status == 0) {
    MPI_Finalize();
    if (accel::process().has_mpi || Session::get().usable()) return 8;
  }
  return status;
}
