#include <accel/prefetcher.hpp>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace accel::detail {

// Two locks: `reading` makes `next` one call at a time and in the order of tickets, also where it takes long; `mutex`
// guards the slots and is never held during a stage.
class Prefetcher::State {
 public:
  State(PrefetchStages stages, std::size_t workers, std::size_t ahead) : stages_(std::move(stages)), slots_(ahead) {
    threads_.reserve(workers);
    try {
      for (std::size_t worker = 0; worker < workers; ++worker) threads_.emplace_back([this, worker] { work(worker); });
    } catch (...) {  // no more threads to be had: those there are must end before their state does
      stop();
      throw;
    }
  }
  ~State() { stop(); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Parcel take() {
    std::unique_lock lock(mutex_);
    if (over_) return nullptr;
    std::optional<Result>& slot = slots_[taken_ % slots_.size()];
    arrived_.wait(lock, [&slot] { return slot.has_value(); });
    const Result result = std::move(*slot);
    slot.reset();
    ++taken_;
    over_ = result.error != nullptr || result.parcel == nullptr;
    lock.unlock();
    freed_.notify_all();
    if (result.error) std::rethrow_exception(result.error);
    return result.parcel;
  }

 private:
  struct Result {
    Parcel parcel;  // null and no error: nothing is left
    std::exception_ptr error;
  };
  struct Ticket {
    std::size_t number = 0;
    Result claim;
  };

  void stop() {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    freed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void work(std::size_t worker) {
    while (auto ticket = claim()) {
      Result result = std::move(ticket->claim);
      if (result.parcel) {
        try {
          result.parcel = stages_.make(worker, result.parcel);
        } catch (...) {
          result = {nullptr, std::current_exception()};
        }
      }
      {
        const std::scoped_lock lock(mutex_);
        slots_[ticket->number % slots_.size()] = std::move(result);
      }
      arrived_.notify_one();
    }
  }

  // Nothing once the stages are exhausted, or the consumer is gone.
  std::optional<Ticket> claim() {
    const std::scoped_lock reading(reading_);
    {
      std::unique_lock lock(mutex_);
      freed_.wait(lock, [this] { return stopping_ || exhausted_ || claimed_ < taken_ + slots_.size(); });
      if (stopping_ || exhausted_) return std::nullopt;
    }
    Ticket ticket{.number = claimed_, .claim = {}};
    try {
      ticket.claim.parcel = stages_.next();
    } catch (...) {
      ticket.claim.error = std::current_exception();
    }
    const std::scoped_lock lock(mutex_);
    ++claimed_;
    exhausted_ = ticket.claim.parcel == nullptr;
    if (exhausted_) freed_.notify_all();
    return ticket;
  }

  const PrefetchStages stages_;
  std::mutex reading_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::condition_variable freed_;
  std::vector<std::optional<Result>> slots_;  // result n lies in slot n modulo their number
  std::size_t claimed_ = 0;
  std::size_t taken_ = 0;
  bool exhausted_ = false;  // `next` has nothing left
  bool over_ = false;       // the consumer has seen the end, or an error
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

Prefetcher::Prefetcher(PrefetchStages stages, std::size_t workers, std::size_t ahead)
    : state_(std::make_unique<State>(std::move(stages), workers, ahead)) {}
Prefetcher::~Prefetcher() = default;

Parcel Prefetcher::take() {
  return state_->take();
}

}  // namespace accel::detail
