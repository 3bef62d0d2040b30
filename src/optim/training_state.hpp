#pragma once

#include "grad/sync_unit.hpp"
#include "optim/accumulation_window.hpp"

#include <accel/collectives.hpp>
#include <accel/model.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace accel::detail {

struct OpenGuard;

/// What accel knows of one prepared model.
struct ModelState {
  explicit ModelState(ModelRef model) : ref(std::move(model)) {}

  ModelRef ref;
  std::size_t index = 0;                         ///< in order of prepare
  std::string name;                              ///< for error texts: "model 0 (weight, ...)"
  std::vector<NamedTensor> parameters;           ///< as of prepare or refresh
  std::vector<std::shared_ptr<SyncUnit>> units;  ///< empty in a group of one

  AccumulationWindow window;
  std::uint64_t generation = 0;  ///< TrainingState::windows when its last window closed with a gradient
  double divided_by = 1.0;       ///< what the losses of this window were divided by before their backward
  int quiet = 0;                 ///< no_sync guards alive
  int evaluations = 0;           ///< optimizer closures under way
  bool buffers_due = false;      ///< a window closed since buffers went round
  bool more_open = false;        ///< outside any guard: the last backward said `.more`

  // Of the open guard.
  OpenGuard* guard = nullptr;
  bool held_in_guard = false;    ///< had a backward
  bool synced_in_guard = false;  ///< its gradients were reduced (at one rank: would have been)
  bool closed_in_guard = false;

  /// No window is open, and an open guard has closed its own.
  [[nodiscard]] bool at_boundary() const;

  /// Remembers the gradients of the open window, to notice if they are cleared behind its back.
  void mark_gradients();
  /// The first parameter whose remembered gradient is gone or was zeroed.
  [[nodiscard]] std::optional<std::string> cleared_parameter() const;

  /// The parameters whose gradients were added to or replaced since they were remembered.
  [[nodiscard]] std::vector<at::Tensor> changed_since_marked() const;

  /// Gradients may be there: of an open window, or of the guard that closed it.
  [[nodiscard]] bool holds_gradients() const { return window.open() || (guard != nullptr && held_in_guard); }

  /// Sets all gradients to undefined and forgets the window.
  void drop_window();

 private:
  struct Mark {
    const void* gradient = nullptr;
    std::uint32_t version = 0;
  };
  std::vector<Mark> marks_;
};

/// One micro-batch's guard.
struct OpenGuard {
  std::vector<ModelState*> models;
  bool closes = false;
  bool syncs = false;
  bool skipped = false;
};

/// What models, optimizers and schedulers of one Accelerator share.
struct TrainingState {
  explicit TrainingState(Group group_of_ranks) : group(std::move(group_of_ranks)) {}

  Group group;
  std::int64_t steps = 1;  ///< gradient_accumulation_steps
  std::vector<std::unique_ptr<ModelState>> models;
  std::uint64_t windows = 0;  ///< closed with a gradient, of all models: what their generations count by
  bool join = false;          ///< a join_uneven_inputs guard lives
  std::uint64_t version = 0;  ///< changes when a model is prepared, refreshed or forgotten

  [[nodiscard]] ModelState* find(const void* key) const;
  /// The models that own this parameter.
  [[nodiscard]] const std::vector<ModelState*>& owners(const at::Tensor& parameter) const;
  [[nodiscard]] SyncUnit* unit_of(const at::Tensor& parameter) const;
  /// Rebuilds the look-ups of owners and units after `models` changed.
  void index();

 private:
  struct Entry {
    std::vector<ModelState*> owners;
    SyncUnit* unit = nullptr;
  };
  std::unordered_map<const void*, Entry> by_parameter_;
  std::unordered_map<const void*, ModelState*> by_key_;
};

}  // namespace accel::detail
