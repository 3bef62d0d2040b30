#include "core/env.hpp"
#include "core/log.hpp"
#include "runtime/host.hpp"
#include "runtime/job_end.hpp"
#include "runtime/launcher.hpp"
#include "runtime/mpi.hpp"
#include "runtime/session.hpp"

#include <accel/error.hpp>

#include <sched.h>
#include <array>
#include <cstdlib>
#include <optional>

namespace accel::detail {
namespace {

const char* name_of(ThreadLevel level) {
  switch (level) {
    case ThreadLevel::kNone:
      return "no MPI";
    case ThreadLevel::kSingle:
      return "MPI_THREAD_SINGLE";
    case ThreadLevel::kFunneled:
      return "MPI_THREAD_FUNNELED";
    case ThreadLevel::kSerialized:
      return "MPI_THREAD_SERIALIZED";
    case ThreadLevel::kMultiple:
      return "MPI_THREAD_MULTIPLE";
  }
  return "";
}

void notice_thread_level(const Process& process) {
  if (process.thread_level == ThreadLevel::kMultiple) return;
  // One line a job, not one a rank; the others say it to those who ask.
  const LogLevel level = process.rank == 0 ? LogLevel::kWarning : LogLevel::kInfo;
  log_once("thread level", level, job_site(), "process",
           cat("MPI provides ", name_of(process.thread_level), ", not MPI_THREAD_MULTIPLE: collectives run on the ",
               "calling thread and do not overlap with backward",
               process.owns_mpi ? "" : "; call MPI_Init_thread with MPI_THREAD_MULTIPLE in the program"));
}

// Processors that the ranks of this host may use together: each may be bound to one of its own. Collective.
int cores_of(MPI_Comm host) {
  cpu_set_t own;
  CPU_ZERO(&own);
  if (::sched_getaffinity(0, sizeof(own), &own) != 0) CPU_ZERO(&own);
  cpu_set_t all;
  CPU_ZERO(&all);
  check_mpi(MPI_Allreduce(&own, &all, sizeof(own), MPI_BYTE, MPI_BOR, host), "MPI_Allreduce");
  return CPU_COUNT(&all);
}

// Whether a rank that waits gives its core to one that works; nothing where this MPI has no such setting.
std::optional<bool> yields_when_idle() {
  // Asked for MPI's own level: Open MPI 4.1 takes what is asked here for the level of MPI as a whole, and calls from
  // several threads then share requests that are made for one.
  int level = MPI_THREAD_SINGLE;
  check_mpi(MPI_Query_thread(&level), "MPI_Query_thread");
  int provided = 0;
  if (MPI_T_init_thread(level, &provided) != MPI_SUCCESS) return std::nullopt;
  std::optional<bool> answer;
  int index = 0;
  MPI_T_cvar_handle handle = MPI_T_CVAR_HANDLE_NULL;
  int count = 0;
  if (MPI_T_cvar_get_index("mpi_yield_when_idle", &index) == MPI_SUCCESS &&
      MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count) == MPI_SUCCESS) {
    std::array<int, 8> value{};
    if (count == 1 && MPI_T_cvar_read(handle, value.data()) == MPI_SUCCESS) answer = value[0] != 0;
    MPI_T_cvar_handle_free(&handle);
  }
  MPI_T_finalize();
  return answer;
}

// Collective over the job.
void notice_busy_waiting(const Process& process, MPI_Comm world) {
  MPI_Comm host = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, process.rank, MPI_INFO_NULL, &host),
            "MPI_Comm_split_type");
  return_errors(host);
  const int cores = cores_of(host);
  check_mpi(MPI_Comm_free(&host), "MPI_Comm_free");
  if (process.rank != 0 || cores <= 0 || process.local_size <= cores) return;
  if (yields_when_idle() != std::optional(false)) return;
  log(LogLevel::kWarning, job_site(), "process",
      cat(process.local_size, " ranks share ", cores, " cores and ranks that wait do not yield: expect them to take ",
          "the time of those that work; start with `accel launch`, `mpirun --oversubscribe` or ",
          "`--mca mpi_yield_when_idle 1`"));
}

int finalize_of_host(MPI_Comm, int, void*, void*) {
  Session::get().close();
  return MPI_SUCCESS;
}

// MPI_Finalize, whoever calls it, first deletes the attributes of MPI_COMM_SELF: the last moment at which MPI works.
void close_with_mpi() {
  int key = MPI_KEYVAL_INVALID;
  check_mpi(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, finalize_of_host, &key, nullptr), "MPI_Comm_create_keyval");
  check_mpi(MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr), "MPI_Comm_set_attr");
  check_mpi(MPI_Comm_free_keyval(&key), "MPI_Comm_free_keyval");
}

void world_site(Process& process) {
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &process.rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &process.size), "MPI_Comm_size");
  set_job_site({process.rank, process.size});
}

bool mpi_is(int (*ask)(int*), const char* call) {
  int flag = 0;
  check_mpi(ask(&flag), call);
  return flag != 0;
}

}  // namespace

Session::Session() {
  process_.host = host_name();
  ordered_exit_ms_ = env_integer("ACCEL_EXIT_TIMEOUT").value_or(0) * 1000;
  if (mpi_is(MPI_Finalized, "MPI_Finalized"))
    throw CommError(message(job_site(), "process",
                            "expected MPI to be usable, found it finalised; make the first call to accel before "
                            "MPI_Finalize"));
  const bool borrowed = mpi_is(MPI_Initialized, "MPI_Initialized");
  if (!borrowed && !started_by_launcher()) {
    const std::string notice = notice_of_lone_tasks();
    if (!notice.empty()) log(LogLevel::kWarning, job_site(), "process", notice);
    return;
  }

  int level = MPI_THREAD_SINGLE;
  if (borrowed)
    check_mpi(MPI_Query_thread(&level), "MPI_Query_thread");
  else
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread");
  process_.has_mpi = true;
  process_.owns_mpi = !borrowed;
  process_.thread_level = thread_level_of(level);
  world_site(process_);
  notice_thread_level(process_);
  close_with_mpi();
  usable_.store(true, std::memory_order_release);
  if (borrowed) {
    facts_from_launcher(process_);
    return;
  }
  const MPI_Comm world = duplicate_communicator(MPI_COMM_WORLD);
  place_among(process_, world);
  notice_busy_waiting(process_, world);
  own_the_end(world);
}

void end_all_ranks(int code) noexcept {
  int initialized = 0;
  int finalized = 0;
  if (MPI_Initialized(&initialized) == MPI_SUCCESS && initialized != 0 && MPI_Finalized(&finalized) == MPI_SUCCESS &&
      finalized == 0)
    MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

}  // namespace accel::detail
