#include "comm/mpi_engine.hpp"

#include "core/log.hpp"

#include <accel/error.hpp>

#include <pthread.h>
#include <array>
#include <system_error>
#include <thread>

namespace accel::detail {
namespace {

std::string words_of(const MpiFailure& failure) {
  std::array<char, MPI_MAX_ERROR_STRING + 1> text{};
  int length = 0;
  if (MPI_Error_string(failure.code, text.data(), &length) != MPI_SUCCESS) length = 0;
  return cat(failure.call, " failed with code ", failure.code, length > 0 ? ": " : "",
             std::string_view(text.data(), static_cast<std::size_t>(length)));
}

std::string name_of(const MpiCall& call) {
  std::string name = cat(call.name, " #", call.number);
  if (call.operation) name += cat(" (", grouped(call.bytes), " bytes)");
  return name;
}

}  // namespace

MpiEngine::MpiEngine(MPI_Comm communicator, Site site, const GroupOptions& options, std::shared_ptr<StatsTable> stats)
    : ring_{communicator, site.rank, site.size},
      site_(site),
      timeout_(options.timeout),
      policy_(Session::get().failure_policy(options.on_failure)),
      has_worker_(Session::get().process().thread_level == ThreadLevel::kMultiple),
      may_run_here_(!has_worker_ || policy_ == OnFailure::kAbortJob),
      stats_(std::move(stats)) {}

std::shared_ptr<MpiEngine> MpiEngine::make(MPI_Comm communicator, Site site, const GroupOptions& options,
                                           std::shared_ptr<StatsTable> stats) {
  std::shared_ptr<MpiEngine> engine(new MpiEngine(communicator, site, options, std::move(stats)));
  Session::get().at_close([engine] { engine->close(); });
  return engine;
}

CallFacts MpiEngine::facts(const MpiCall& call) const {
  return {call.name, call.number, call.operation ? call.bytes : -1, site_};
}

void MpiEngine::count(const MpiCall& call) noexcept {
  if (call.operation)
    stats_->count(*call.operation, call.purpose, call.transport, static_cast<std::uint64_t>(call.bytes));
}

void MpiEngine::carry_by_mpi(const MpiCall& call, std::int64_t bytes) noexcept {
  stats_->carry(Transport::kMpi, call.purpose, static_cast<std::uint64_t>(bytes));
}

void MpiEngine::begin_outside(MpiCall& call) {
  {
    const std::lock_guard lock(mutex_);
    check_alive(call);
    call.number = ++calls_;
  }
  count(call);
}

void MpiEngine::on_death(std::function<void(const std::string&)> tell) {
  const std::lock_guard lock(mutex_);
  tell_death_ = std::move(tell);
}

void MpiEngine::also_free(MPI_Comm communicator) {
  const std::lock_guard lock(mutex_);
  others_.push_back(communicator);
}

void MpiEngine::check_alive(const MpiCall& call) const {
  if (!dead_.empty())
    throw CommError(
        message(site_, call.name, cat("the group can no longer be used, end the job: ", dead_, place(call.where))));
  if (closed_ || !Session::get().usable())
    throw CommError(message(site_, call.name,
                            cat("expected MPI to be usable, found it finalised; communicate before "
                                "MPI_Finalize",
                                place(call.where))));
}

void MpiEngine::throw_if_dead(const MpiCall& call) {
  const std::lock_guard lock(mutex_);
  check_alive(call);
}

void MpiEngine::die(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (!dead_.empty()) return;
  dead_ = why;
  if (tell_death_) tell_death_(dead_);
}

std::exception_ptr MpiEngine::failed(const MpiCall& call, const MpiFailure& failure) {
  return failed(call, words_of(failure));
}

std::exception_ptr MpiEngine::failed(const MpiCall& call, const std::string& what) {
  die(cat(name_of(call), ": ", what));
  return std::make_exception_ptr(CommError(
      message(site_, name_of(call), cat(what, place(call.where), "; the group can no longer be used, end the job"))));
}

std::exception_ptr MpiEngine::failed(const MpiCall& call, const MeetFailure& failure) {
  if (failure.kind != MeetFailure::Kind::kTimeout) return failed(call, failure.text);
  const std::string silence =
      cat("no answer for ", static_cast<double>(timeout_.count()) / 1000.0, " s: ", failure.text);
  die(cat(name_of(call), " had ", silence));
  const std::string text =
      cat(silence, "; it is stuck, works much longer than the others or made other calls; raise the time-out ",
          "(GroupOptions::timeout) if it is only slow", place(call.where));
  if (policy_ == OnFailure::kAbortJob) {
    log(LogLevel::kError, site_, name_of(call), cat(text, "; ending the job"));
    end_all_ranks(1);
  }
  return std::make_exception_ptr(
      TimeoutError(message(site_, name_of(call), cat(text, "; the group can no longer be used"))));
}

std::exception_ptr MpiEngine::timed_out(const MpiCall& call, std::chrono::milliseconds limit) {
  die(cat(name_of(call), " had no answer for ", static_cast<double>(limit.count()) / 1000.0, " s"));
  return std::make_exception_ptr(
      TimeoutError(cat(timeout_text(facts(call), limit), place(call.where), "; the group can no longer be used")));
}

void MpiEngine::keep_for_ever(at::Tensor buffer) {
  const std::lock_guard lock(mutex_);
  kept_.push_back(std::move(buffer));
}

bool MpiEngine::begin_here(MpiCall& call, bool async) {
  std::unique_lock lock(mutex_);
  check_alive(call);
  if (!has_worker_) {
    done_.wait(lock, [this] { return !busy_; });
    check_alive(call);
  } else if (async || !(may_run_here_ || call.meets) || busy_ || !queue_.empty()) {
    return false;
  }
  busy_ = true;
  call.number = ++calls_;
  turn_started_ = Clock::now();
  return true;
}

void MpiEngine::run_here(const MpiCall& call, c10::function_ref<void(const Ring&)> body) {
  const std::exception_ptr error = perform(call, body);
  bool more = false;
  {
    const std::lock_guard lock(mutex_);
    busy_ = false;
    more = !queue_.empty();
  }
  if (more) wake_.notify_one();
  done_.notify_all();
  if (error) std::rethrow_exception(error);
}

Channel::Pending MpiEngine::enqueue(const MpiCall& call, bool async, Body body) {
  auto job = std::make_shared<MpiJob>(shared_from_this(), call, std::move(body));
  {
    const std::lock_guard lock(mutex_);
    check_alive(call);
    if (!worker_runs_) start_worker();
    job->call_.number = ++calls_;
    queue_.push_back(job);
  }
  wake_.notify_one();
  if (async) return job;
  job->wait(std::chrono::milliseconds::zero());
  return nullptr;
}

std::exception_ptr MpiEngine::perform(const MpiCall& call, c10::function_ref<void(const Ring&)> body) noexcept {
  try {
    if (!has_worker_ && policy_ == OnFailure::kThrow && !call.meets) await_peers(call);
    std::optional<BlockingCall> watched;
    if (!call.meets && (policy_ == OnFailure::kAbortJob || !has_worker_))
      watched.emplace(facts(call), timeout_ + call.grace, policy_);
    count(call);
    body(ring_);
    return nullptr;
  } catch (const MpiFailure& failure) {
    return failed(call, failure);
  } catch (const MeetFailure& failure) {
    return failed(call, failure);
  } catch (const Error& error) {
    die(error.what());
    return std::current_exception();
  } catch (const std::exception& error) {
    return failed(call, error.what());
  }
}

// At a thread level without a worker nobody could leave a blocking call, so it is made when all peers are there.
void MpiEngine::await_peers(const MpiCall& call) {
  MPI_Request arrival = MPI_REQUEST_NULL;
  require_mpi(MPI_Ibarrier(ring_.communicator, &arrival), "MPI_Ibarrier");
  const auto deadline = Clock::now() + timeout_;
  for (unsigned polls = 1;; ++polls) {
    int arrived = 0;
    require_mpi(MPI_Test(&arrival, &arrived, MPI_STATUS_IGNORE), "MPI_Test");
    if (arrived != 0) return;
    if (polls % 256 != 0) continue;
    if (Clock::now() >= deadline) std::rethrow_exception(timed_out(call, timeout_));
    std::this_thread::yield();
  }
}

void MpiEngine::start_worker() {
  try {
    // Never joined: it may be stuck in MPI for good. It owns a share of the engine for as long as it runs.
    std::thread worker([self = shared_from_this()] { self->work(); });
    pthread_setname_np(worker.native_handle(), "accel-comm");
    worker.detach();
    worker_runs_ = true;
  } catch (const std::system_error& error) {
    throw CommError(message(site_, "worker",
                            cat("expected a thread for communication, found none: ", error.what(),
                                "; raise the limit of threads (ulimit -u)")));
  }
}

void MpiEngine::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return !busy_ && (!queue_.empty() || stop_); });
    if (queue_.empty()) break;
    const std::shared_ptr<MpiJob> job = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    turn_started_ = Clock::now();
    const std::string dead = dead_;
    lock.unlock();
    std::exception_ptr error =
        dead.empty() ? perform(job->call_, job->body_)
                     : std::make_exception_ptr(CommError(message(
                           site_, name_of(job->call_), cat("the group can no longer be used, end the job: ", dead))));
    job->body_ = nullptr;
    job->finish(std::move(error));
    lock.lock();
  }
  worker_runs_ = false;
  done_.notify_all();
}

void MpiEngine::retire() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
}

// All ranks have come to their end, so calls that all of them made complete; only those of a lost peer do not.
void MpiEngine::close() {
  std::unique_lock lock(mutex_);
  stop_ = true;
  closed_ = true;
  wake_.notify_one();
  const bool failed_before = !dead_.empty();
  const auto patience = failed_before ? std::chrono::milliseconds(100) : timeout_;
  const bool idle = done_.wait_for(lock, patience, [this] { return !worker_runs_ && !busy_; });
  if (idle) {
    lock.unlock();
    for (MPI_Comm& other : others_) check_mpi(MPI_Comm_free(&other), site_, "MPI_Comm_free");
    MPI_Comm communicator = ring_.communicator;
    check_mpi(MPI_Comm_free(&communicator), site_, "MPI_Comm_free");
    return;
  }
  const std::string why = cat("a call to a lost peer is still under way",
                              failed_before ? cat(" (", dead_, ")") : std::string(), ", MPI cannot be finalised");
  lock.unlock();
  log(LogLevel::kError, site_, "exit", why);
  if (Session::get().process().owns_mpi) end_all_ranks(1);
}

void MpiEngine::wait_for(MpiJob& job, std::chrono::milliseconds asked) {
  std::unique_lock lock(mutex_);
  const auto is_done = [&job] { return job.done_; };
  const bool explicit_limit = asked > std::chrono::milliseconds::zero();
  if (policy_ == OnFailure::kAbortJob && !explicit_limit) {
    done_.wait(lock, is_done);  // the watchdog sees to the time-out
  } else {
    const auto limit = explicit_limit ? asked : timeout_ + job.call_.grace;
    const auto entered = Clock::now();
    // The group's own time-out is for one call: calls before this one in the queue have theirs.
    const auto deadline = [&] { return (explicit_limit || !busy_ ? entered : turn_started_) + limit; };
    while (!job.done_) {
      const auto until = deadline();
      if (done_.wait_until(lock, until, is_done)) break;
      if (Clock::now() < deadline()) continue;
      lock.unlock();
      std::rethrow_exception(timed_out(job.call_, limit));
    }
  }
  if (job.error_) std::rethrow_exception(job.error_);
}

bool MpiJob::is_completed() {
  const std::lock_guard lock(engine_->mutex_);
  return done_;
}

void MpiJob::on_done(std::function<void(std::exception_ptr)> done) {
  {
    const std::lock_guard lock(engine_->mutex_);
    if (!done_) {
      callbacks_.push_back(std::move(done));
      return;
    }
  }
  done(error_);
}

void MpiJob::finish(std::exception_ptr error) {
  std::vector<std::function<void(std::exception_ptr)>> callbacks;
  {
    const std::lock_guard lock(engine_->mutex_);
    done_ = true;
    error_ = error;
    engine_->busy_ = false;
    callbacks = std::move(callbacks_);
  }
  engine_->done_.notify_all();
  for (const auto& callback : callbacks) callback(error);
}

}  // namespace accel::detail
