#pragma once

#include <accel/accumulate.hpp>
#include <accel/collectives.hpp>
#include <accel/model.hpp>
#include <accel/scheduler.hpp>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace accel {

/// How an Accelerator behaves. Checked once, in its constructor.
struct AcceleratorOptions {
  // Behaviour.
  std::int64_t gradient_accumulation_steps = 1;  ///< micro-batches of a window, on each rank; >= 1
  TailPolicy tail_policy = TailPolicy::kDivideByActual;
  bool sync_with_dataloader = true;  ///< the last batch of the loader being iterated closes the window
  SchedulerUnit scheduler_unit = SchedulerUnit::kPerOptimizerStep;
  std::optional<Group> group = std::nullopt;         ///< the ranks that train together; nothing: all ranks of the job
  std::optional<c10::Device> device = std::nullopt;  ///< nothing: `device_for` (a GPU where there is one)
  bool device_placement = true;                      ///< prepare moves models, loaders move batches to the device
  bool broadcast_buffers = true;  ///< buffers of rank 0 go round when the next window of their model begins
  std::chrono::milliseconds comm_timeout = std::chrono::minutes(30);  ///< longest wait for a peer in one call
  OnFailure on_failure = OnFailure::kDefault;

  // Performance.
  /// Reduce at every micro-batch although the optimizer steps at the window's end: same numbers, n times the traffic;
  /// gradients of a rank never stay local. For debugging and for memory-bound sharded optimizers.
  bool sync_each_batch = false;
  std::int64_t first_bucket_bytes = std::int64_t{1} << 20;  ///< of the gradients that are ready first; > 0
  std::int64_t bucket_bytes = std::int64_t{25} << 20;       ///< upper bound of one transfer of gradients; > 0
};

/// How one backward runs.
struct BackwardOptions {
  /// The models this loss is for; empty: those of the open guards. Gradients flow into these models only.
  std::vector<ModelRef> inputs = {};
  /// The loss is a sum over this many items (tokens, >= 0) on this rank; the window is divided by those of all ranks.
  std::optional<std::int64_t> items = std::nullopt;
  /// Another backward of the same models follows in this micro-batch: nothing is reduced yet.
  bool more = false;
  std::optional<bool> retain_graph = std::nullopt;
  bool create_graph = false;
  /// The gradient at the loss, for a loss that is no scalar: shape and dtype of the loss.
  std::optional<at::Tensor> gradient = std::nullopt;
};

}  // namespace accel
