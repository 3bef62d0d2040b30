#pragma once

#include "accelerator/join.hpp"
#include "grad/round.hpp"
#include "grad/window_header.hpp"
#include "optim/optimizer_state.hpp"
#include "optim/scheduler_state.hpp"
#include "optim/training_state.hpp"

#include <accel/accelerator.hpp>
#include <accel/source_location.hpp>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace accel::detail {

/// What an Accelerator is made of. Its methods lie in files by concern: prepare, accumulate, backward, window, ranks.
class AcceleratorImpl : public std::enable_shared_from_this<AcceleratorImpl> {
 public:
  explicit AcceleratorImpl(const AcceleratorOptions& options);
  ~AcceleratorImpl();  // accumulate.cpp
  AcceleratorImpl(const AcceleratorImpl&) = delete;
  AcceleratorImpl& operator=(const AcceleratorImpl&) = delete;

  // prepare.cpp
  void prepare_model(const ModelRef& model);
  std::shared_ptr<OptimizerState> prepare_optimizer(std::shared_ptr<torch::optim::Optimizer> optimizer);
  std::shared_ptr<SchedulerState> prepare_scheduler(const void* key, std::function<void()> step,
                                                    std::vector<std::shared_ptr<OptimizerState>> optimizers);
  std::vector<std::shared_ptr<OptimizerState>> optimizers();  ///< those the program still holds, in order of prepare
  std::vector<std::shared_ptr<SchedulerState>> schedulers();  ///< the same
  [[nodiscard]] LoaderBinding loader_binding() const;
  void refresh(const ModelRef& model);
  void free_memory();

  // accumulate.cpp
  std::unique_ptr<OpenGuard> enter(const std::vector<ModelRef>& models, const MicroBatchOptions& options);
  void leave(OpenGuard& guard) noexcept;
  void skip(OpenGuard& guard);
  void end_no_sync(const void* model) noexcept;

  // backward.cpp
  void backward(const std::vector<at::Tensor>& losses, const BackwardOptions& options);

  // join.cpp
  void open_join(const JoinOptions& options);
  void close_join() noexcept;
  /// @throws UsageError  in a loop under a join guard, where ranks make different numbers of calls.
  void refuse_in_join(const char* call) const;
  [[nodiscard]] int last_active_rank() const { return join_ ? join_->last_active : 0; }

  // ranks.cpp
  [[nodiscard]] std::optional<BatchRows> rows_at_hand();
  void set_trigger() { trigger_ = true; }
  [[nodiscard]] bool take_trigger() { return std::exchange(trigger_, false); }
  /// Keeps the tensor of a send alive until MPI is done with it.
  void keep(Work work, const at::Tensor& tensor);

  /// Where the program makes the call that follows, for error texts.
  AcceleratorImpl& at(const SourceLocation& where) {
    where_ = where;
    return *this;
  }

  // window.cpp
  void sync(const ModelRef& model);
  void finish_window(const ModelRef& model);
  void discard_window(const ModelRef& model);
  void zero_grad(const ModelRef& model);

  /// @throws UsageError  it was not prepared; `call` is for the text.
  [[nodiscard]] ModelState& state_of(const ModelRef& model, const char* call) const;
  [[noreturn]] void usage_error(const char* call, const std::string& text) const;

  [[nodiscard]] const AcceleratorOptions& options() const { return options_; }
  [[nodiscard]] const Group& group() const { return training_->group; }
  [[nodiscard]] c10::Device device() const { return device_; }
  [[nodiscard]] bool alone() const { return group().size() == 1; }
  [[nodiscard]] std::int64_t steps() const { return training_->steps; }
  void set_steps(std::int64_t steps);
  [[nodiscard]] bool sync_gradients() const { return sync_gradients_; }

 private:
  /// One model of a backward or of a round without one.
  struct Target {
    ModelState* model = nullptr;
    bool syncs = false;
    bool closes = false;
    bool counts = false;        ///< a micro-batch of its own, not a further loss of one that was counted
    bool holds_its_own = true;  ///< brings a gradient (false: skip, finish_window)
  };
  using Run = std::function<void()>;

  // prepare.cpp
  std::vector<NamedTensor> unique_parameters(const ModelRef& model) const;
  [[nodiscard]] bool is_another(const ModelState& state, const ModelRef& model) const;
  void place(const ModelRef& model) const;
  void rebuild_units();

  // accumulate.cpp
  void begin_window(ModelState& model);
  void broadcast_buffers(ModelState& model);
  void notice_no_loader(const MicroBatchOptions& options);
  void notice_left_gradients(const ModelState& model);

  // backward.cpp
  std::vector<Target> targets_of(const BackwardOptions& options) const;
  [[nodiscard]] std::vector<ModelState*> models_reached(const std::vector<at::Tensor>& losses) const;
  Target decide(ModelState& model, const BackwardOptions& options) const;
  void check(const std::vector<at::Tensor>& losses, const BackwardOptions& options) const;
  double prepare_backward(const std::vector<at::Tensor>& losses, const BackwardOptions& options,
                          const std::vector<Target>& targets) const;
  void run_autograd(const std::vector<at::Tensor>& losses, const BackwardOptions& options, double divisor,
                    const std::vector<Target>& targets);
  [[nodiscard]] double divisor_of(const std::vector<Target>& targets, const BackwardOptions& options,
                                  c10::ScalarType loss_type) const;
  [[nodiscard]] static bool has_half_parameters(const std::vector<Target>& targets);
  at::Tensor root_gradient(const at::Tensor& loss, double divisor);

  // join.cpp
  [[nodiscard]] RoundModels models_of(const std::vector<Target>& targets, const char* call) const;
  [[nodiscard]] std::vector<Target> targets_of(const RoundModels& models) const;
  void note_round(const RoundOpening& opening);
  /// Of a rank that has run out: takes part in rounds until no rank is active, then becomes as those that were.
  void stay_joined();
  /// One round. @return false: no rank is active any more
  bool take_part_joined();
  void catch_up();

  // window.cpp
  /// Runs `run` (a backward, or nothing) and counts it; reduces where targets sync.
  void micro_batch(std::vector<Target>& targets, std::optional<std::int64_t> items, const char* call, const Run& run);
  std::vector<TargetTotals> agree(const std::vector<Target>& targets, const char* call);
  [[nodiscard]] std::vector<TargetHeader> headers_of(const std::vector<Target>& targets) const;
  /// What is left to agree on when all ranks know the totals.
  void settle(const std::vector<Target>& targets, const std::vector<TargetTotals>& totals, const char* call);
  void reduce(const std::vector<Target>& targets, const std::vector<TargetTotals>& totals, const char* call,
              const Run& run);
  void finish(std::vector<Target>& targets, const std::vector<TargetTotals>& totals);
  void announce_failure(std::vector<Target>& targets, const std::string& reason);
  [[nodiscard]] std::vector<RoundUnit> units_of(const std::vector<Target>& targets,
                                                const std::vector<TargetTotals>& totals) const;
  static void drop(std::vector<Target>& targets);
  /// @param done  parameters that were multiplied already: models may share some
  void finish_alone(Target& target, std::set<const void*>& done);
  [[nodiscard]] bool used_elsewhere(const SyncUnit& unit, const std::vector<Target>& targets) const;
  [[nodiscard]] double correction_of(const ModelState& model, bool by_items) const;
  void count(Target& target, std::optional<std::int64_t> items);
  void close(Target& target, const TargetTotals& totals);
  [[nodiscard]] TargetHeader header_of(const Target& target) const;
  [[nodiscard]] std::string description_of(const std::vector<Target>& targets) const;
  void exchange_orders(const std::vector<Target>& targets);

  AcceleratorOptions options_;
  std::shared_ptr<TrainingState> training_;
  c10::Device device_ = c10::DeviceType::CPU;
  std::shared_ptr<ActiveLoaders> loaders_ = std::make_shared<ActiveLoaders>();
  std::vector<std::weak_ptr<OptimizerState>> optimizers_;
  std::vector<std::pair<const void*, std::weak_ptr<SchedulerState>>> schedulers_;
  std::vector<std::shared_ptr<SyncUnit>> units_;
  std::vector<OpenGuard*> guards_;  ///< open ones, innermost last
  std::map<std::tuple<double, c10::ScalarType, std::string>, at::Tensor> roots_;
  std::vector<std::pair<Work, at::Tensor>> kept_;
  SourceLocation where_;  ///< of the collective call that the program made last
  std::optional<JoinState> join_;
  bool trigger_ = false;
  bool sync_gradients_ = true;
  bool noticed_no_loader_ = false;
  bool noticed_left_gradients_ = false;
};

}  // namespace accel::detail
