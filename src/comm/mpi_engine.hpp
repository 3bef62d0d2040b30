#pragma once

#include "comm/channel.hpp"
#include "comm/group_impl.hpp"
#include "comm/host_board.hpp"
#include "comm/mpi_buffers.hpp"
#include "runtime/session.hpp"

#include <accel/source_location.hpp>

#include <c10/util/FunctionRef.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace accel::detail {

/// One call of a group, in words and numbers.
struct MpiCall {
  const char* name = "";
  std::optional<Operation> operation;  ///< what comm_stats counts it as; nothing for calls that make groups
  Purpose purpose = Purpose::kControl;
  std::int64_t bytes = 0;
  SourceLocation where;
  Transport transport = Transport::kMpi;
  /// Ranks meet in shared memory: no MPI is called, and waiting ends by itself, so that any thread may make the call.
  bool meets = false;
  /// How much longer than the time-out others wait for this call: it waits for ranks of its host first, and then names
  /// the one that is missing, which others cannot.
  std::chrono::milliseconds grace{0};
  std::uint64_t number = 0;  ///< given when its turn is decided: equal on all ranks that make the same calls
};

class MpiJob;

/// The communicator of one group and the order of its calls.
///
///   caller --sync--> idle? --yes--> runs here, on the caller's thread        (one lock, no hop)
///                      |no
///   caller --async-----+--> queue --> worker thread, blocking MPI calls --> done_ --> wait()
///
/// Each group has a queue of its own, so overlapping groups do not wait for each other. Below MPI_THREAD_MULTIPLE there
/// is no worker: every call runs here. Under OnFailure::kAbortJob the watchdog ends the job when a call outlives the
/// time-out; under kThrow a call that may block is the worker's, so that the caller can leave it and throw; below
/// MULTIPLE it first waits for the peers with a barrier that can be given up.
///
/// After a failure the group is dead: the worker may be stuck in MPI for good and every later call throws at once.
class MpiEngine : public std::enable_shared_from_this<MpiEngine> {
 public:
  using Body = std::function<void(const Ring&)>;

  /// Takes over `communicator`, which is ours (duplicated or split, returning errors). It is freed when the session
  /// closes and not before: MPI_Comm_free is collective, and destructors do not communicate.
  static std::shared_ptr<MpiEngine> make(MPI_Comm communicator, Site site, const GroupOptions& options,
                                         std::shared_ptr<StatsTable> stats);

  MpiEngine(const MpiEngine&) = delete;
  MpiEngine& operator=(const MpiEngine&) = delete;

  /// Runs `body` in the order of this group's calls. Null if it is done on return.
  template <class AnyBody>
  Channel::Pending call(MpiCall call, bool async, AnyBody body) {
    if (begin_here(call, async)) {
      run_here(call, body);
      return nullptr;
    }
    return enqueue(call, async, Body(std::move(body)));
  }

  /// No more calls will come: the worker finishes what is queued and ends. Does not wait for it.
  void retire() noexcept;

  // For operations outside the order (point-to-point).
  [[nodiscard]] const Ring& ring() const { return ring_; }
  [[nodiscard]] Site site() const { return site_; }
  [[nodiscard]] std::chrono::milliseconds timeout() const { return timeout_; }
  [[nodiscard]] OnFailure policy() const { return policy_; }
  void throw_if_dead(const MpiCall& call);
  void count(const MpiCall& call) noexcept;
  [[nodiscard]] CallFacts facts(const MpiCall& call) const;

  /// Numbers and counts a call that is made outside the queue. @throws CommError  the group is dead.
  void begin_outside(MpiCall& call);

  /// Bytes of a counted call that MPI takes further.
  void carry_by_mpi(const MpiCall& call, std::int64_t bytes) noexcept;

  /// Called when the group dies, so that the ranks that wait for this one learn of it.
  void on_death(std::function<void(const std::string& why)> tell);

  /// Another communicator of this group, freed with the first.
  void also_free(MPI_Comm communicator);

  /// The error of a call that failed or ran out of time; the group is dead from then on.
  std::exception_ptr failed(const MpiCall& call, const MpiFailure& failure);
  std::exception_ptr failed(const MpiCall& call, const std::string& what);
  /// Under kAbortJob a time-out ends the job here.
  std::exception_ptr failed(const MpiCall& call, const MeetFailure& failure);
  std::exception_ptr timed_out(const MpiCall& call, std::chrono::milliseconds limit);

  /// Keeps `buffers` for ever: MPI may still write into them.
  void keep_for_ever(at::Tensor buffer);

 private:
  friend class MpiJob;
  using Clock = std::chrono::steady_clock;

  MpiEngine(MPI_Comm communicator, Site site, const GroupOptions& options, std::shared_ptr<StatsTable> stats);

  bool begin_here(MpiCall& call, bool async);
  void run_here(const MpiCall& call, c10::function_ref<void(const Ring&)> body);
  Channel::Pending enqueue(const MpiCall& call, bool async, Body body);
  std::exception_ptr perform(const MpiCall& call, c10::function_ref<void(const Ring&)> body) noexcept;
  void await_peers(const MpiCall& call);
  void wait_for(MpiJob& job, std::chrono::milliseconds asked);
  void work();
  void start_worker();
  void close();
  void check_alive(const MpiCall& call) const;
  void die(const std::string& why);

  const Ring ring_;
  const Site site_;
  const std::chrono::milliseconds timeout_;
  const OnFailure policy_;
  const bool has_worker_;  // MPI_THREAD_MULTIPLE
  const bool may_run_here_;
  const std::shared_ptr<StatsTable> stats_;

  std::mutex mutex_;
  std::condition_variable wake_;  // the worker: there is work, or the turn is free
  std::condition_variable done_;  // those who wait for a call or a turn
  std::deque<std::shared_ptr<MpiJob>> queue_;
  bool busy_ = false;  // a call is under way, here or on the worker
  bool worker_runs_ = false;
  bool stop_ = false;
  bool closed_ = false;
  std::string dead_;  // why, or empty
  std::function<void(const std::string&)> tell_death_;
  std::vector<MPI_Comm> others_;
  std::uint64_t calls_ = 0;
  Clock::time_point turn_started_;
  std::vector<at::Tensor> kept_;
};

/// A call in the queue of a group.
class MpiJob final : public WorkImpl {
 public:
  MpiJob(std::shared_ptr<MpiEngine> engine, const MpiCall& call, MpiEngine::Body body)
      : engine_(std::move(engine)), call_(call), body_(std::move(body)) {}

  void wait(std::chrono::milliseconds timeout) override { engine_->wait_for(*this, timeout); }
  bool is_completed() override;
  void on_done(std::function<void(std::exception_ptr)> done) override;

 private:
  friend class MpiEngine;

  void finish(std::exception_ptr error);

  const std::shared_ptr<MpiEngine> engine_;
  MpiCall call_;
  MpiEngine::Body body_;
  // Under the engine's lock:
  bool done_ = false;
  std::exception_ptr error_;
  std::vector<std::function<void(std::exception_ptr)>> callbacks_;
};

}  // namespace accel::detail
