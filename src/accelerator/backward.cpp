#include "accelerator/accelerator_impl.hpp"
#include "comm/ops.hpp"
#include "core/message.hpp"
#include "device/autocast_off.hpp"
#include "device/libtorch_compat.hpp"

#include <accel/error.hpp>

#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <tuple>
#include <unordered_set>
#include <utility>

namespace accel::detail {
namespace {

/// Puts the units of a backward into quiet mode for as long as it runs.
class QuietUnits {
 public:
  void add(SyncUnit& unit) {
    if (unit.mode() == SyncUnit::Mode::kRound) return;  // shared with a model that syncs
    unit.set_mode(SyncUnit::Mode::kQuiet);
    units_.push_back(&unit);
  }
  QuietUnits() = default;
  ~QuietUnits() {
    for (SyncUnit* unit : units_) unit->set_mode(SyncUnit::Mode::kOutside);
  }
  QuietUnits(const QuietUnits&) = delete;
  QuietUnits& operator=(const QuietUnits&) = delete;

 private:
  std::vector<SyncUnit*> units_;
};

}  // namespace

void AcceleratorImpl::backward(const std::vector<at::Tensor>& losses, const BackwardOptions& options) {
  std::vector<Target> targets;
  if (options.inputs.empty() && guards_.empty() && training_->models.size() > 1) {
    check(losses, options);
    for (ModelState* model : models_reached(losses)) targets.push_back(decide(*model, options));
  } else {
    targets = targets_of(options);
  }
  double divisor = 1.0;
  try {
    divisor = prepare_backward(losses, options, targets);
  } catch (const std::exception& error) {
    announce_failure(targets, error.what());
    throw;
  }
  micro_batch(targets, options.items, "backward", [&] {
    QuietUnits quiet;
    for (const Target& target : targets)
      if (!target.syncs)
        for (const auto& unit : target.model->units) quiet.add(*unit);
    run_autograd(losses, options, divisor, targets);
  });
}

double AcceleratorImpl::prepare_backward(const std::vector<at::Tensor>& losses, const BackwardOptions& options,
                                         const std::vector<Target>& targets) const {
  check(losses, options);
  for (const Target& target : targets)
    if (target.model->window.held() > 0 && target.model->window.by_items() != options.items.has_value())
      usage_error("backward", cat("expected all losses of one window to be means, or all to be sums with .items, found "
                                  "both in the window of ",
                                  target.model->name, "; pass .items with each loss of the window, or with none"));
  return divisor_of(targets, options, losses.front().scalar_type());
}

void AcceleratorImpl::check(const std::vector<at::Tensor>& losses, const BackwardOptions& options) const {
  if (losses.empty()) usage_error("backward", "expected a loss, found none; give at least one tensor");
  for (const at::Tensor& loss : losses) {
    if (!loss.defined())
      usage_error("backward", "expected a loss, found an undefined tensor; give the result of the forward");
    if (!loss.requires_grad())
      usage_error("backward",
                  "expected a loss that depends on parameters, found one that requires no gradient; compute "
                  "it without NoGradGuard from the model's output");
    if (!options.gradient && loss.numel() != 1)
      usage_error("backward", cat("expected a scalar loss, found shape ", loss.sizes(),
                                  "; reduce it (loss.mean()), or give its gradient with .gradient"));
  }
  if (options.gradient && (losses.size() != 1 || options.gradient->sizes() != losses.front().sizes()))
    usage_error("backward", cat("expected .gradient of the shape of one loss, found ", options.gradient->sizes(),
                                " for ", losses.size(), " losses, the first of shape ", losses.front().sizes(),
                                "; call backward once a loss, with .more on all but the last"));
  if (options.items && *options.items < 0)
    usage_error("backward",
                cat("expected .items >= 0, found ", *options.items, "; count the items the loss sums over"));
}

std::vector<AcceleratorImpl::Target> AcceleratorImpl::targets_of(const BackwardOptions& options) const {
  std::vector<Target> targets;
  const auto add = [&](ModelState& model) {
    const auto known = [&model](const Target& target) { return target.model == &model; };
    if (std::none_of(targets.begin(), targets.end(), known)) targets.push_back(decide(model, options));
  };
  if (!options.inputs.empty()) {
    for (const ModelRef& model : options.inputs) add(state_of(model, "backward"));
  } else if (!guards_.empty()) {
    for (const OpenGuard* guard : guards_)
      for (ModelState* model : guard->models) add(*model);
  } else {
    for (const auto& model : training_->models) add(*model);
  }
  if (targets.empty())
    usage_error("backward", "expected a prepared model, found none; call accelerator.prepare(model) first");
  return targets;
}

AcceleratorImpl::Target AcceleratorImpl::decide(ModelState& model, const BackwardOptions& options) const {
  Target target{.model = &model, .syncs = true, .closes = true, .counts = true, .holds_its_own = true};
  if (model.evaluations > 0) return target;
  if (model.guard != nullptr) {
    target.counts = !model.held_in_guard;
    if (model.guard->skipped)
      usage_error("backward",
                  cat("expected no backward after skip(), found one for ", model.name, "; a micro-batch has either"));
    if (model.closed_in_guard || (model.synced_in_guard && !options.more))
      usage_error("backward",
                  cat("expected one syncing backward of a model in a micro-batch, found a second for ", model.name,
                      "; name the models that each loss is for with .inputs; for several losses of one model pass "
                      "{.more = true} to all backward calls but the last, or give them at once: "
                      "backward({loss1, loss2})"));
    target.syncs = model.guard->syncs;
    target.closes = model.guard->closes;
  } else {
    target.counts = !model.more_open;
  }
  if (options.more || model.quiet > 0) target.syncs = target.closes = false;
  return target;
}

// Outside any guard, with several models and none named: those whose parameters the graph ends in.
std::vector<ModelState*> AcceleratorImpl::models_reached(const std::vector<at::Tensor>& losses) const {
  std::unordered_set<const torch::autograd::Node*> seen;
  std::vector<const torch::autograd::Node*> stack;
  std::vector<ModelState*> reached;
  for (const at::Tensor& loss : losses)
    if (const auto& node = loss.grad_fn()) stack.push_back(&*node);
  while (!stack.empty()) {
    const torch::autograd::Node* node = stack.back();
    stack.pop_back();
    if (!seen.insert(node).second) continue;
    const at::Tensor variable = accumulated_variable(*node);
    if (variable.defined())
      for (ModelState* owner : training_->owners(variable))
        if (std::find(reached.begin(), reached.end(), owner) == reached.end()) reached.push_back(owner);
    for (const auto& edge : node->next_edges())
      if (edge.function) stack.push_back(&*edge.function);
  }
  if (reached.empty())
    usage_error("backward", "expected a loss of a prepared model, found that it reaches none; prepare the model");
  std::sort(reached.begin(), reached.end(), [](auto* a, auto* b) { return a->index < b->index; });
  return reached;
}

bool AcceleratorImpl::has_half_parameters(const std::vector<Target>& targets) {
  return std::any_of(targets.begin(), targets.end(), [](const Target& target) {
    return std::any_of(target.model->parameters.begin(), target.model->parameters.end(),
                       [](const NamedTensor& parameter) { return parameter.tensor.scalar_type() == c10::kHalf; });
  });
}

// In the root of the graph, where it is known now: 1/n there gives the bits that `loss / n` by hand gives. A window
// keeps the divisor that it began with, so that all its losses weigh the same; what differs from n in the end is put
// right when it closes.
double AcceleratorImpl::divisor_of(const std::vector<Target>& targets, const BackwardOptions& options,
                                   c10::ScalarType loss_type) const {
  const ModelState* begun = nullptr;
  for (const Target& target : targets) {
    const ModelState& model = *target.model;
    if (options.items ? model.window.held() == 0 : !model.window.open()) continue;
    if (begun == nullptr) begun = &model;
    if (model.divided_by != begun->divided_by)
      usage_error("backward",
                  cat("expected the models of one loss to have windows that began alike, found ", begun->name, " and ",
                      model.name, " apart; give them one guard from their first micro-batch on: accumulate(a, b)"));
  }
  double divisor = static_cast<double>(steps());
  if (begun != nullptr)
    divisor = begun->divided_by;
  else if (options.items && !options_.sync_each_batch && (loss_type == c10::kHalf || has_half_parameters(targets)))
    // A sum of float16 losses would overflow long before their mean: divide now by about what the window will hold.
    divisor *= static_cast<double>(std::max<std::int64_t>(1, *options.items));
  else if (options.items)
    divisor = 1.0;
  for (const Target& target : targets) target.model->divided_by = divisor;
  return divisor;
}

at::Tensor AcceleratorImpl::root_gradient(const at::Tensor& loss, double divisor) {
  if (divisor == 1.0) return {};
  if (roots_.size() > 64) roots_.clear();  // divisors of item windows are many
  at::Tensor& root = roots_[std::tuple(divisor, loss.scalar_type(), loss.device().str())];
  // Divided in the loss's own dtype, as `loss / n` is.
  if (!root.defined()) root = at::ones({}, loss.options().requires_grad(false)).div_(divisor);
  return root.expand(loss.sizes());
}

void AcceleratorImpl::run_autograd(const std::vector<at::Tensor>& losses, const BackwardOptions& options,
                                   double divisor, const std::vector<Target>& targets) {
  std::vector<at::Tensor> roots;
  for (const at::Tensor& loss : losses)
    roots.push_back(options.gradient ? (divisor == 1.0 ? *options.gradient : *options.gradient / divisor)
                                     : root_gradient(loss, divisor));
  std::vector<at::Tensor> inputs;
  if (!options.inputs.empty()) {
    for (const Target& target : targets)
      for (const NamedTensor& parameter : target.model->parameters)
        if (parameter.tensor.requires_grad()) inputs.push_back(parameter.tensor);
    if (inputs.empty())
      usage_error("backward", "expected trainable parameters in the models of .inputs, found none; thaw some");
  }
  const AutocastOff autocast_off;
  torch::autograd::backward(losses, roots, options.retain_graph, options.create_graph, inputs);
}

}  // namespace accel::detail
