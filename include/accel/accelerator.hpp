#pragma once

#include <accel/accelerator_options.hpp>
#include <accel/accumulate.hpp>
#include <accel/collectives.hpp>
#include <accel/data.hpp>
#include <accel/device.hpp>
#include <accel/export.hpp>
#include <accel/join.hpp>
#include <accel/model.hpp>
#include <accel/optimizer.hpp>
#include <accel/prepare.hpp>
#include <accel/scheduler.hpp>
#include <accel/source_location.hpp>
#include <accel/tree_methods.hpp>

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace accel {

/// The training runtime of one group of ranks: devices, exact gradient accumulation, reduction over ranks.
///
/// Nothing here is global: two Accelerators do not see each other. Not thread-safe: used by the thread that trains.
/// One that was moved from can be assigned to or destroyed; any other use is a UsageError.
class ACCEL_API Accelerator : public detail::TreeMethods {
 public:
  /// Collective over the group (its communicator is duplicated).
  /// @throws UsageError  an option is out of range (names it), CUDA was asked for and there is none.
  explicit Accelerator(const AcceleratorOptions& options = {});
  ~Accelerator();
  Accelerator(Accelerator&&) noexcept;
  Accelerator& operator=(Accelerator&&) noexcept;
  Accelerator(const Accelerator&) = delete;
  Accelerator& operator=(const Accelerator&) = delete;

  // --- prepare -------------------------------------------------------------------------------------------------------

  /// Prepares models, optimizers, loaders and schedulers, in any number and order; returns them in the order given, as
  /// a tuple, one alone bare. Models come back as they were given (a module given by reference as a reference);
  /// optimizers as accel::Optimizer, schedulers as accel::Scheduler, loaders bound to this rank's shard. Optimizers and
  /// schedulers given as lvalues are referred to and must outlive the prepared ones; temporaries and pointers are kept.
  /// Things of one program may be prepared in several calls, models no later than they are used; what a call returns
  /// for a model may be left unused. Preparing twice is harmless.
  ///
  /// Collective: models are compared over ranks, then rank 0's parameters and buffers go to all.
  /// A scheduler is bound to the optimizer of the same call; with as many schedulers as optimizers, the n-th to the
  /// n-th.
  /// @throws UsageError  on all ranks: models differ between ranks (names rank, tensor, both values); a parameter with
  ///                     sparse gradients (names it); a foreign loader not declared sharded; fewer batches than ranks.
  template <class... Things>
  decltype(auto) prepare(Things&&... things) {
    static_assert(sizeof...(Things) > 0, "prepare() needs something to prepare");
    detail::Preparer preparer(shared());
    (preparer.template models<Things>(things), ...);
    (preparer.template optimizers<Things>(things), ...);
    if constexpr (sizeof...(Things) == 1)
      return (preparer.template finish<Things>(things), ...);
    else  // braces: in the order of the arguments
      return std::tuple<decltype(preparer.template finish<Things>(things))...>{
          preparer.template finish<Things>(things)...};
  }

  /// A scheduler bound to this optimizer, where `prepare` cannot guess it.
  template <class S>
  [[nodiscard]] Scheduler prepare_scheduler(S&& schedule, const Optimizer& optimizer) {
    (void)optimizer.steps();  // refuses an empty one
    return detail::Preparer(shared()).scheduler(std::forward<S>(schedule), {optimizer.impl()});
  }

  /// A loader that accel did not make: any range of batches, or a torch::data loader by pointer. Reads one batch ahead.
  /// @throws UsageError  several ranks, and not declared `{.already_sharded = true}`; a null pointer.
  template <class Range>
  [[nodiscard]] auto prepare_loader(Range&& range, const ForeignLoaderOptions& options = {}) {
    return ForeignLoader<std::remove_cvref_t<Range>>(std::forward<Range>(range), detail::loader_binding(*shared()),
                                                     options);
  }

  // --- the micro-batch -----------------------------------------------------------------------------------------------

  /// Opens the guard of one micro-batch of these models. Several models count once and must stand at the same
  /// micro-batch. Collective where a new window begins and the model has buffers.
  /// @throws UsageError  a model that was not prepared, has an open guard, or whose gradients were cleared inside the
  ///                     window (names the parameter); models at different micro-batches.
  MicroBatch accumulate(const ModelRef& model, const MicroBatchOptions& options = {});
  MicroBatch accumulate(const ModelRef& first, const ModelRef& second, const MicroBatchOptions& options = {});
  MicroBatch accumulate(const ModelRef& first, const ModelRef& second, const ModelRef& third,
                        const MicroBatchOptions& options = {});
  MicroBatch accumulate(const std::vector<ModelRef>& models, const MicroBatchOptions& options = {});

  /// Keeps backward passes of this model from syncing while the returned guard lives.
  NoSync no_sync(const ModelRef& model);

  /// Runs backward and, where the micro-batch syncs, reduces the gradients of its models over ranks while it runs. The
  /// division by the window is done here: give the loss as it is. Outside any guard it syncs.
  ///
  /// Collective where it syncs. After a syncing backward the gradients are bitwise equal on all ranks.
  /// @param loss  a scalar (or `options.gradient`), a mean over the rank's micro-batch, or a sum with `options.items`.
  ///
  /// Source: Li et al., PyTorch Distributed: Experiences on Accelerating Data Parallel Training, VLDB 2020 (buckets and
  /// overlap); the order of transfers is fixed here, theirs follows the forward.
  /// @throws UsageError      a second syncing backward of a model in one micro-batch (`.more` is the remedy); ranks
  ///                         that disagree on models or trainable parameters.
  /// @throws AbandonedError  another rank threw; the window is dropped on all ranks.
  /// @throws CommError       a peer is lost.
  void backward(const at::Tensor& loss, const BackwardOptions& options = {},
                SourceLocation where = SourceLocation::current());
  /// Several losses of one micro-batch, in one pass and one round.
  void backward(const std::vector<at::Tensor>& losses, const BackwardOptions& options = {},
                SourceLocation where = SourceLocation::current());

  /// Averages what `.grad` holds now over ranks, without hooks, and closes the window: for gradients made by hand, by
  /// graph replay, or by backward in several threads. Collective.
  void sync(const ModelRef& model, SourceLocation where = SourceLocation::current());

  /// Closes the model's window with what it holds; with nothing on any rank nothing happens. Collective.
  void finish_window(const ModelRef& model, SourceLocation where = SourceLocation::current());

  /// Throws away the model's open window and its gradients. Local: every rank calls it.
  void discard_window(const ModelRef& model);

  /// Micro-batches counted in the model's open window.
  [[nodiscard]] std::int64_t pending_micro_batches(const ModelRef& model) const;

  /// Tells that tensors of the model were replaced, added or removed. Collective at several ranks: rank 0's go to all.
  void refresh(const ModelRef& model);

  /// Clears the gradients of the model if its window is not open; inside one it does nothing.
  void zero_grad(const ModelRef& model);

  /// Whether the micro-batch begun last closes its window; true before the first.
  [[nodiscard]] bool sync_gradients() const;

  [[nodiscard]] std::int64_t gradient_accumulation_steps() const;
  /// From the next guard on; the open window keeps its count. @throws UsageError  steps < 1.
  void set_gradient_accumulation_steps(std::int64_t steps);

  /// Opens a guard under which ranks may have different numbers of batches; join.hpp says how. Every rank opens it,
  /// around the loop; opening is local.
  /// @throws UsageError  such a guard is open; sync_each_batch is on.
  JoinUnevenInputs join_uneven_inputs(const JoinOptions& options = {});

  /// Calls `callback` after each performed step of the optimizer, in order of registration.
  void on_step(const Optimizer& optimizer, std::function<void()> callback);

  // --- ranks ---------------------------------------------------------------------------------------------------------

  /// True if it is on some rank. Collective.
  [[nodiscard]] bool any(bool value, SourceLocation where = SourceLocation::current());
  /// True if it is on every rank. Collective.
  [[nodiscard]] bool all(bool value, SourceLocation where = SourceLocation::current());
  /// Mean over ranks, in float64; NaN on one rank makes it NaN on all. Collective.
  [[nodiscard]] double mean(double value, SourceLocation where = SourceLocation::current());
  /// Mean over ranks, a new tensor; floating. Collective.
  [[nodiscard]] at::Tensor mean(const at::Tensor& value, SourceLocation where = SourceLocation::current());

  /// Sets this rank's flag for check_trigger, as for a loss that ends the training. Local.
  void set_trigger();
  /// Whether some rank has called set_trigger since the last check, on all ranks; clears the flags. Collective.
  [[nodiscard]] bool check_trigger(SourceLocation where = SourceLocation::current());

  [[nodiscard]] const Group& group() const;
  [[nodiscard]] int process_index() const { return group().rank(); }
  [[nodiscard]] int num_processes() const { return group().size(); }
  [[nodiscard]] int local_process_index() const { return group().process().local_rank; }
  [[nodiscard]] bool is_main_process() const { return process_index() == 0; }
  [[nodiscard]] bool is_local_main_process() const { return local_process_index() == 0; }
  [[nodiscard]] c10::Device device() const;

  /// The batch (tensor, Example, pair, tuple, vector, map, nested) on this accelerator's device.
  template <class Tree>
  [[nodiscard]] auto to_device(Tree&& tree) const {
    return accel::to_device(std::forward<Tree>(tree), device());
  }

  /// Writes the arguments and a line end to stdout, on the main process only. Local.
  template <class... Parts>
  void print(const Parts&... parts) const {
    if (is_main_process()) (std::cout << ... << parts) << std::endl;
  }

  /// Returns when all ranks of the group have called it. Collective.
  void wait_for_everyone(SourceLocation where = SourceLocation::current());

  /// `const auto first = accelerator.main_process_first();` Collective at its beginning.
  /// @throws UsageError  the group has no backend for CPU tensors.
  MainProcessFirst main_process_first();

  /// Calls `function` on the main process only. Local.
  template <class Function>
  void on_main_process(Function&& function) const {
    if (is_main_process()) std::forward<Function>(function)();
  }

  [[nodiscard]] CommStats comm_stats() const;

  /// Forgets all that was prepared: models, optimizers, hooks and buckets. What was prepared must be prepared again.
  void free_memory();
};

/// Copies parameters and buffers of rank `root` to all ranks of `group`, after a check that the models agree. Needs no
/// Accelerator. Collective.
/// @throws UsageError  on all ranks: the models differ (names rank, tensor and both values).
ACCEL_API void broadcast_parameters(const ModelRef& model, int root = 0, const Group& group = world(),
                                    SourceLocation where = SourceLocation::current());

}  // namespace accel
