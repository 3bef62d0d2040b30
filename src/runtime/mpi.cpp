#include "runtime/mpi.hpp"

#include "runtime/session.hpp"

#include <accel/error.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace accel::detail {

void check_mpi(int rc, std::string_view call) {
  if (rc != MPI_SUCCESS) check_mpi(rc, job_site(), call);
}

void check_mpi(int rc, Site site, std::string_view call) {
  if (rc == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING + 1> text{};
  int length = 0;
  if (MPI_Error_string(rc, text.data(), &length) != MPI_SUCCESS) length = 0;
  const std::string words(text.data(), static_cast<std::size_t>(length));
  throw CommError(message(site, call,
                          cat("MPI failed with code ", rc, words.empty() ? "" : ": ", words,
                              "; a rank or the network is gone, end the job")));
}

void return_errors(MPI_Comm communicator) {
  check_mpi(MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

MPI_Comm duplicate_communicator(MPI_Comm communicator) {
  MPI_Comm copy = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(communicator, &copy), "MPI_Comm_dup");
  return_errors(copy);
  return copy;
}

void place_among(Process& facts, MPI_Comm communicator) {
  check_mpi(MPI_Comm_rank(communicator, &facts.rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(communicator, &facts.size), "MPI_Comm_size");

  MPI_Comm host = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(communicator, MPI_COMM_TYPE_SHARED, facts.rank, MPI_INFO_NULL, &host),
            "MPI_Comm_split_type");
  return_errors(host);
  check_mpi(MPI_Comm_rank(host, &facts.local_rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(host, &facts.local_size), "MPI_Comm_size");
  // A host is named by its lowest rank, which is local rank 0 because the split keeps the order.
  int leader = facts.rank;
  check_mpi(MPI_Bcast(&leader, 1, MPI_INT, 0, host), "MPI_Bcast");
  check_mpi(MPI_Comm_free(&host), "MPI_Comm_free");

  std::vector<int> leaders(static_cast<std::size_t>(facts.size));
  check_mpi(MPI_Allgather(&leader, 1, MPI_INT, leaders.data(), 1, MPI_INT, communicator), "MPI_Allgather");
  std::sort(leaders.begin(), leaders.end());
  leaders.erase(std::unique(leaders.begin(), leaders.end()), leaders.end());
  facts.hosts = static_cast<int>(leaders.size());
  facts.host_index = static_cast<int>(std::lower_bound(leaders.begin(), leaders.end(), leader) - leaders.begin());
}

Process facts_of(MPI_Comm communicator) {
  Process facts = Session::get().process();
  place_among(facts, communicator);
  return facts;
}

std::string mpi_library() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING + 1> text{};
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return "unknown";
  const std::string words(text.data(), static_cast<std::size_t>(length));
  return words.substr(0, words.find_first_of("\n,"));
}

ThreadLevel thread_level_of(int mpi_level) {
  if (mpi_level >= MPI_THREAD_MULTIPLE) return ThreadLevel::kMultiple;
  if (mpi_level >= MPI_THREAD_SERIALIZED) return ThreadLevel::kSerialized;
  if (mpi_level >= MPI_THREAD_FUNNELED) return ThreadLevel::kFunneled;
  return ThreadLevel::kSingle;
}

}  // namespace accel::detail
