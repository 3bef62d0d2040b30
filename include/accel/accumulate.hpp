#pragma once

#include <accel/export.hpp>
#include <accel/model.hpp>
#include <accel/source_location.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace accel {

namespace detail {
class AcceleratorImpl;
struct OpenGuard;
}  // namespace detail

/// By what the gradients of a window are divided.
enum class TailPolicy {
  kDivideByActual,      ///< the micro-batches that all ranks really held in it
  kDivideByConfigured,  ///< gradient_accumulation_steps x ranks, as Python's Accelerate does: a short window counts
                        ///< less
};

/// What is known about one micro-batch when its guard is opened.
struct MicroBatchOptions {
  /// True: this micro-batch is the last one and closes the window. For loops without a prepared loader, and for those
  /// that end before their loader does. It is one more reason beside the others: every gradient_accumulation_steps-th
  /// micro-batch and the last of a prepared loader close all the same.
  std::optional<bool> last = std::nullopt;
};

/// One micro-batch: the scope in which the models of `accumulate` see one forward and backward. Decided at entry:
/// whether its backward syncs. The destructor counts the micro-batch if it had a backward (or `skip`), and never
/// communicates.
class [[nodiscard(
    "the guard's scope is the micro-batch: const auto micro = accelerator.accumulate(model);")]] ACCEL_API MicroBatch {
 public:
  ~MicroBatch();
  MicroBatch(const MicroBatch&) = delete;
  MicroBatch& operator=(const MicroBatch&) = delete;

  /// This micro-batch's backward reduces gradients over ranks: it closes the window, or sync_each_batch is on.
  [[nodiscard]] bool syncs() const;

  /// After this micro-batch the window closes and the optimizer steps.
  [[nodiscard]] bool closes_window() const;

  /// Takes part with nothing: for a rank whose data gives no loss here. The micro-batch counts in the window's
  /// position and not in its divisor. Collective where `syncs()`.
  /// @throws UsageError  backward was called in this micro-batch already.
  void skip(SourceLocation where = SourceLocation::current()) const;

 private:
  friend class Accelerator;
  MicroBatch(std::shared_ptr<detail::AcceleratorImpl> accelerator, const std::vector<ModelRef>& models,
             const MicroBatchOptions& options);

  std::shared_ptr<detail::AcceleratorImpl> accelerator_;
  std::unique_ptr<detail::OpenGuard> guard_;
};

/// While alive, backward passes of one model send nothing, whatever the window says: the micro-batches stay in the open
/// window. accel divides by the micro-batches of the window when it closes; do not divide the loss yourself.
class [[nodiscard(
    "no_sync holds while the guard lives: const auto quiet = accelerator.no_sync(model);")]] ACCEL_API NoSync {
 public:
  ~NoSync();
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  friend class Accelerator;
  NoSync(std::shared_ptr<detail::AcceleratorImpl> accelerator, const ModelRef& model);
  std::shared_ptr<detail::AcceleratorImpl> accelerator_;
  const void* model_;
};

/// The main process runs the scope first; the others wait at its beginning until the main process has left it.
class [[nodiscard("the scope is run by the main process first: const auto first = ...")]] ACCEL_API MainProcessFirst {
 public:
  /// On the main process: lets the others go, by one non-blocking byte to each; also while unwinding.
  ~MainProcessFirst();
  MainProcessFirst(const MainProcessFirst&) = delete;
  MainProcessFirst& operator=(const MainProcessFirst&) = delete;

 private:
  friend class Accelerator;
  explicit MainProcessFirst(std::shared_ptr<detail::AcceleratorImpl> accelerator);
  std::shared_ptr<detail::AcceleratorImpl> accelerator_;
};

}  // namespace accel
