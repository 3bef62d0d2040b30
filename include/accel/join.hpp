#pragma once

#include <accel/export.hpp>

#include <memory>
#include <optional>

namespace accel {

namespace detail {
class AcceleratorImpl;
}  // namespace detail

/// For Accelerator::join_uneven_inputs.
struct JoinOptions {
  /// In place of the loaders' own even_batches, for passes that begin while the guard lives. `false` is what one wants
  /// here: each sample once. Not for loaders with dispatch_batches.
  std::optional<bool> even_batches = std::nullopt;
  /// By what the gradients of a window are divided in which some ranks have run out. False: the micro-batches that were
  /// really held, so that each counts the same. True: as many as if every rank had held what the fullest one did, so
  /// that a lone rank counts as little as among others; Python's join does so. Losses given with `.items` are divided
  /// by the items either way.
  bool divide_by_initial_world_size = false;
};

/// While alive, ranks may have different numbers of batches: `const auto join = accelerator.join_uneven_inputs();`
/// around one or several loops, each over one prepared loader, that train.
///
/// A rank whose loader runs out stays in its loop's last `++` and takes part in each further round: with the gradients
/// that its open window still holds, then with nothing. When no rank is active any more the loop ends everywhere, and
/// ranks that ran out early get parameters, buffers, optimizers and schedulers from a rank that was active to the end,
/// so that all are equal again.
///
/// Inside such a loop no other call may be collective (any, mean, gather, barriers, an evaluation): accel refuses those
/// of the Accelerator. Buffers are not broadcast there; a rank's callbacks of on_step do not run for steps that it did
/// not take, so bring an average up to date with `broadcast_parameters(average, join.last_active_rank())`. Leave such a
/// loop by `break` on all ranks or on none.
///
/// Source: Li et al., the Join context of PyTorch (2021), whose shadowing ranks this follows; the divisor and the state
/// at the end are accel's.
class [[nodiscard("the guard holds while it lives: const auto join = accelerator.join_uneven_inputs();")]] ACCEL_API
    JoinUnevenInputs {
 public:
  /// Local.
  ~JoinUnevenInputs();
  JoinUnevenInputs(const JoinUnevenInputs&) = delete;
  JoinUnevenInputs& operator=(const JoinUnevenInputs&) = delete;

  /// The lowest rank that took part in the last round of the last loop with a micro-batch; equal on all ranks. Local.
  [[nodiscard]] int last_active_rank() const;

 private:
  friend class Accelerator;
  JoinUnevenInputs(std::shared_ptr<detail::AcceleratorImpl> accelerator, const JoinOptions& options);

  std::shared_ptr<detail::AcceleratorImpl> accelerator_;
};

}  // namespace accel
