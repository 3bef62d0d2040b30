#pragma once

#include <accel/export.hpp>

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>

namespace accel {

/// How a Progress shows itself.
struct ProgressOptions {
  std::string label = {};             ///< before the bar, as in "epoch 3/8"
  std::string unit = "it";            ///< of the rate
  bool enabled = true;                ///< false: silent; give `accelerator.is_main_process()`
  std::ostream* out = nullptr;        ///< null: stderr
  std::optional<bool> terminal = {};  ///< nothing: whether stderr is one; a stream of your own is none
};

/// How far a loop is. On a terminal a bar that is redrawn in place, at most ten times a second, with rate and remaining
/// time; elsewhere (log files, pipes) one plain line when it is finished. Local. Not thread-safe.
/// @code
/// accel::Progress progress(loader.size(), {.label = "epoch 1/8", .enabled = accelerator.is_main_process()});
/// for (auto& batch : loader) { ...; progress.advance(); }
/// @endcode
class ACCEL_API Progress {
 public:
  /// @param total  steps of the loop; 0: not known.
  explicit Progress(std::uint64_t total, const ProgressOptions& options = {});
  /// Finishes it, if `finish` did not.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(std::uint64_t steps = 1);

  /// Text behind the numbers, as in "loss 0.123"; shown with the next redraw.
  void set_status(std::string status);

  /// Draws the last state and ends the line. Once; later calls do nothing.
  void finish();

  [[nodiscard]] std::uint64_t done() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace accel
