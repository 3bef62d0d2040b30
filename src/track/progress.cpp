#include <accel/progress.hpp>

#include "core/message.hpp"
#include "track/progress_line.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <iostream>
#include <utility>

namespace accel {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kRedrawEvery = std::chrono::milliseconds(100);
constexpr std::size_t kUsualColumns = 80;

// Asked at each redraw: windows are resized.
std::size_t columns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsualColumns;
  return size.ws_col;
}

}  // namespace

class Progress::State {
 public:
  State(std::uint64_t total, const ProgressOptions& options)
      : out_(options.out != nullptr ? *options.out : std::cerr),
        enabled_(options.enabled),
        terminal_(options.terminal.value_or(options.out == nullptr && isatty(STDERR_FILENO) == 1)),
        start_(Clock::now()) {
    facts_.label = options.label;
    facts_.unit = options.unit;
    facts_.total = total;
  }

  void advance(std::uint64_t steps) {
    facts_.done += steps;
    if (!enabled_ || !terminal_ || finished_) return;
    if (const auto now = Clock::now(); now - drawn_ >= kRedrawEvery) {
      drawn_ = now;
      redraw();
    }
  }

  void finish() {
    if (std::exchange(finished_, true) || !enabled_) return;
    if (terminal_) {
      redraw();
      out_ << '\n';
    } else {
      facts_.seconds = elapsed();
      out_ << detail::progress_summary(facts_) << '\n';
    }
    out_.flush();
  }

  detail::ProgressFacts& facts() { return facts_; }

 private:
  [[nodiscard]] double elapsed() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  // One write: lines of other programs on the terminal do not fall into the middle. The last column stays free, since
  // some terminals wrap as soon as it is written.
  void redraw() {
    facts_.seconds = elapsed();
    out_ << detail::cat("\r", detail::progress_bar(facts_, columns() - 1), "\x1b[K") << std::flush;
  }

  std::ostream& out_;
  const bool enabled_;
  const bool terminal_;
  const Clock::time_point start_;
  Clock::time_point drawn_{};
  bool finished_ = false;
  detail::ProgressFacts facts_;
};

Progress::Progress(std::uint64_t total, const ProgressOptions& options)
    : state_(std::make_unique<State>(total, options)) {}

Progress::~Progress() {
  try {
    finish();
  } catch (const std::exception&) {
    // A stream that throws loses a line of progress; the loop that it was about is not to die of it.
  }
}

void Progress::advance(std::uint64_t steps) {
  state_->advance(steps);
}
void Progress::set_status(std::string status) {
  state_->facts().status = std::move(status);
}
void Progress::finish() {
  state_->finish();
}
std::uint64_t Progress::done() const {
  return state_->facts().done;
}

}  // namespace accel
