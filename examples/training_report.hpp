#pragma once

#include <accel/accelerator.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>

namespace digits {

/// Counts what a training did and what it sent, for the table at the end.
class TrainingReport {
 public:
  explicit TrainingReport(const accel::Accelerator& accelerator) : accelerator_(accelerator) {}

  void start() {
    started_ = Clock::now();
    sent_ = gradient_bytes();
  }
  void stop() { training_ += Clock::now() - started_; }

  /// Call it at the end of a micro-batch's scope.
  void add(const accel::MicroBatch& micro, std::int64_t samples) {
    const std::uint64_t sent = gradient_bytes();
    (micro.syncs() ? bytes_of_syncs_ : bytes_between_) += sent - sent_;
    sent_ = sent;
    ++micro_batches_;
    syncs_ += micro.syncs() ? 1 : 0;
    samples_ += samples;
  }

  /// On the main process. Numbers are those of one rank, except the samples, which all ranks together read.
  void print() const {
    if (!accelerator_.is_main_process()) return;
    const double seconds = std::chrono::duration<double>(training_).count();
    const auto samples = static_cast<double>(samples_) * accelerator_.num_processes();
    line("ranks", static_cast<std::uint64_t>(accelerator_.num_processes()));
    line("micro-batches", micro_batches_);
    line("sync steps", syncs_);
    line("gradient bytes per sync step", syncs_ > 0 ? bytes_of_syncs_ / syncs_ : 0);
    line("gradient bytes on non-sync micro-batches", bytes_between_);
    line("samples per second", seconds > 0.0 ? static_cast<std::uint64_t>(samples / seconds) : 0);
  }

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] std::uint64_t gradient_bytes() const {
    return accelerator_.comm_stats().of(accel::Purpose::kGradient).bytes;
  }
  static void line(const char* name, std::uint64_t value) {
    std::printf("%-42s %10llu\n", name, static_cast<unsigned long long>(value));
  }

  const accel::Accelerator& accelerator_;
  Clock::time_point started_{};
  Clock::duration training_{};
  std::uint64_t sent_ = 0;
  std::uint64_t bytes_of_syncs_ = 0;
  std::uint64_t bytes_between_ = 0;
  std::uint64_t micro_batches_ = 0;
  std::uint64_t syncs_ = 0;
  std::int64_t samples_ = 0;
};

}  // namespace digits
