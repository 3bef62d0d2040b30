#include "comm/mpi_transfer.hpp"

#include <accel/error.hpp>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

namespace accel::detail {
namespace {

// MPI counts are ints; messages between two ranks with one tag keep their order, so a large one goes in several.
constexpr std::int64_t kMessage = std::int64_t{1} << 30;

int highest_tag(MPI_Comm communicator) {
  int* highest = nullptr;
  int found = 0;
  require_mpi(MPI_Comm_get_attr(communicator, MPI_TAG_UB, &highest, &found), "MPI_Comm_get_attr");
  return found != 0 ? *highest : 32767;  // the least that MPI promises
}

void check_tag(const MpiEngine& engine, const MpiCall& call, int tag) {
  const int highest = highest_tag(engine.ring().communicator);
  if (tag < 0 || tag > highest)
    throw UsageError(
        message(engine.site(), call.name, cat("expected a tag in 0..", highest, ", found ", tag, place(call.where))));
}

}  // namespace

MpiTransfer::MpiTransfer(std::shared_ptr<MpiEngine> engine, const MpiCall& call, Block block, bool receives)
    : engine_(std::move(engine)), call_(call), block_(std::move(block)), receives_(receives) {}

// Whoever drops a transfer that is under way leaves MPI writing to its memory, which must then live on.
MpiTransfer::~MpiTransfer() {
  if (!requests_.empty() && !done_) engine_->keep_for_ever(block_.tensor());
}

Channel::Pending MpiTransfer::send(const std::shared_ptr<MpiEngine>& engine, const at::Tensor& tensor, int to, int tag,
                                   const MpiCall& call) {
  engine->throw_if_dead(call);
  check_tag(*engine, call, tag);
  auto transfer = std::make_shared<MpiTransfer>(engine, call, Block(tensor, Block::Content::kKeep), false);
  transfer->post(to, tag);
  return transfer;
}

Channel::Pending MpiTransfer::recv(const std::shared_ptr<MpiEngine>& engine, const at::Tensor& tensor, int from,
                                   int tag, const MpiCall& call) {
  engine->throw_if_dead(call);
  check_tag(*engine, call, tag);
  auto transfer = std::make_shared<MpiTransfer>(engine, call, Block(tensor, Block::Content::kOverwritten), true);
  transfer->post(from, tag);
  return transfer;
}

void MpiTransfer::post(int peer, int tag) {
  engine_->count(call_);
  auto* const data = static_cast<std::byte*>(block_.data());
  const MPI_Comm communicator = engine_->ring().communicator;
  // A tensor without elements is a message as well: its receiver waits for its sender.
  std::int64_t first = 0;
  do {
    const int count = static_cast<int>(std::min(kMessage, call_.bytes - first));
    MPI_Request request = MPI_REQUEST_NULL;
    const int rc = receives_ ? MPI_Irecv(data + first, count, MPI_BYTE, peer, tag, communicator, &request)
                             : MPI_Isend(data + first, count, MPI_BYTE, peer, tag, communicator, &request);
    if (rc != MPI_SUCCESS)
      std::rethrow_exception(engine_->failed(call_, MpiFailure{rc, receives_ ? "MPI_Irecv" : "MPI_Isend"}));
    requests_.push_back(request);
    first += kMessage;
  } while (first < call_.bytes);
  statuses_.resize(requests_.size());
}

bool MpiTransfer::poll() {
  if (done_) return true;
  int complete = 0;
  const int rc = MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &complete, statuses_.data());
  if (rc == MPI_SUCCESS && complete == 0) return false;
  done_ = true;
  try {
    if (rc == MPI_SUCCESS) {
      finish();
    } else {
      int code = rc;
      if (rc == MPI_ERR_IN_STATUS)
        for (const MPI_Status& status : statuses_)
          if (status.MPI_ERROR != MPI_SUCCESS && status.MPI_ERROR != MPI_ERR_PENDING) code = status.MPI_ERROR;
      error_ = engine_->failed(call_, MpiFailure{code, receives_ ? "MPI_Irecv" : "MPI_Isend"});
    }
  } catch (const std::exception&) {
    error_ = std::current_exception();
  }
  return true;
}

void MpiTransfer::finish() {
  if (!receives_) return;
  check_received();
  block_.copy_back();
}

void MpiTransfer::check_received() const {
  std::int64_t received = 0;
  for (const MPI_Status& status : statuses_) {
    int count = 0;
    require_mpi(MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count");
    received += count;
  }
  if (received != call_.bytes)
    throw UsageError(message(engine_->site(), call_.name,
                             cat("expected ", grouped(call_.bytes), " bytes, found a message of ", grouped(received),
                                 "; receive into the shape and dtype that is sent", place(call_.where))));
}

void MpiTransfer::wait(std::chrono::milliseconds timeout) {
  const bool explicit_limit = timeout > std::chrono::milliseconds::zero();
  {
    std::optional<BlockingCall> watched;
    const bool watchdog_ends_it = engine_->policy() == OnFailure::kAbortJob && !explicit_limit;
    if (watchdog_ends_it) watched.emplace(engine_->facts(call_), engine_->timeout(), engine_->policy());
    poll_until_done(watchdog_ends_it ? std::chrono::milliseconds::zero()
                    : explicit_limit ? timeout
                                     : engine_->timeout());
  }
  std::unique_lock lock(mutex_);
  settle(lock);
  if (error_) std::rethrow_exception(error_);
}

void MpiTransfer::poll_until_done(std::chrono::milliseconds limit) {
  using Clock = std::chrono::steady_clock;
  const auto started = Clock::now();
  for (unsigned polls = 1;; ++polls) {
    {
      const std::lock_guard lock(mutex_);
      if (poll()) return;
    }
    if (polls % 256 != 0) continue;
    if (limit > limit.zero() && Clock::now() - started >= limit)
      std::rethrow_exception(engine_->timed_out(call_, limit));
    std::this_thread::yield();
  }
}

bool MpiTransfer::is_completed() {
  std::unique_lock lock(mutex_);
  const bool done = poll();
  if (done) settle(lock);
  return done;
}

void MpiTransfer::on_done(std::function<void(std::exception_ptr)> done) {
  std::unique_lock lock(mutex_);
  callbacks_.push_back(std::move(done));
  if (poll()) settle(lock);
}

// Callbacks may call us, so they run without the lock.
void MpiTransfer::settle(std::unique_lock<std::mutex>& lock) {
  const auto callbacks = std::exchange(callbacks_, {});
  lock.unlock();
  for (const auto& callback : callbacks) callback(error_);
  lock.lock();
}

}  // namespace accel::detail
