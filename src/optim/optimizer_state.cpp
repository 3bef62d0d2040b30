#include "optim/optimizer_state.hpp"

#include "comm/ops.hpp"
#include "core/message.hpp"
#include "device/autocast_off.hpp"

#include <accel/error.hpp>
#include <accel/source_location.hpp>

#include <torch/optim/optimizer.h>
#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>

#include <algorithm>
#include <exception>
#include <sstream>

namespace accel::detail {

/// While alive, each backward of these models is a window of its own.
class OptimizerState::Evaluation {
 public:
  explicit Evaluation(const std::vector<ModelState*>& models) : models_(models) {
    for (ModelState* model : models_) ++model->evaluations;
  }
  ~Evaluation() {
    for (ModelState* model : models_) --model->evaluations;
  }
  Evaluation(const Evaluation&) = delete;
  Evaluation& operator=(const Evaluation&) = delete;

 private:
  std::vector<ModelState*> models_;
};

namespace {

at::Tensor first_of(torch::optim::Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups())
    if (!group.params().empty()) return group.params().front();
  return {};
}

}  // namespace

OptimizerState::OptimizerState(std::shared_ptr<torch::optim::Optimizer> optimizer,
                               std::shared_ptr<TrainingState> training)
    : optimizer_(std::move(optimizer)), training_(std::move(training)) {
  first_parameter_ = first_of(*optimizer_);
  find_owners();
  generation_stepped_ = training_->windows;
}

bool OptimizerState::has_same_parameters() const {
  return first_parameter_.is_same(first_of(*optimizer_));
}

// Parameter groups are the user's to change, so owners are looked up again whenever their number or the models changed.
void OptimizerState::find_owners() {
  std::size_t parameters = 0;
  for (const auto& group : optimizer_->param_groups()) parameters += group.params().size();
  if (parameters == parameters_seen_ && version_seen_ == training_->version) return;
  owners_.clear();
  units_.clear();
  ownerless_.clear();
  const auto add = [](auto& list, auto* item) {
    if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(item);
  };
  for (const auto& group : optimizer_->param_groups())
    for (const at::Tensor& parameter : group.params()) {
      const auto& owners = training_->owners(parameter);
      if (owners.empty()) ownerless_.push_back(parameter);
      for (ModelState* owner : owners) add(owners_, owner);
      if (SyncUnit* unit = training_->unit_of(parameter)) add(units_, unit);
    }
  parameters_seen_ = parameters;
  version_seen_ = training_->version;
}

std::uint64_t OptimizerState::generation() const {
  std::uint64_t newest = 0;
  for (const ModelState* owner : owners_) newest = std::max(newest, owner->generation);
  return newest;
}

bool OptimizerState::due() const {
  return generation() > generation_stepped_;
}

const at::Tensor* OptimizerState::any_gradient() const {
  for (const auto& group : optimizer_->param_groups())
    for (const at::Tensor& parameter : group.params())
      if (parameter.grad().defined()) return &parameter;
  return nullptr;
}

bool OptimizerState::left_gradients(const ModelState& model) {
  if (model.generation <= generation_stepped_) return false;  // as in every loop that is well
  find_owners();
  return std::find(owners_.begin(), owners_.end(), &model) != owners_.end() && any_gradient() != nullptr;
}

// One rank and no accumulation: what a plain `loss.backward()` left is what accel's would have left, so a loop that was
// changed half-way goes on working.
bool OptimizerState::may_step_plainly() const {
  if (training_->group.size() != 1 || training_->steps != 1) return false;
  return stepped_since_clear_ ? gradients_are_new() : any_gradient() != nullptr;
}

void OptimizerState::remember_gradients() {
  stepped_with_.clear();
  if (training_->group.size() != 1 || training_->steps != 1) return;
  for (const auto& group : optimizer_->param_groups())
    for (const at::Tensor& parameter : group.params())
      if (const at::Tensor& gradient = parameter.grad(); gradient.defined())
        stepped_with_.push_back({decltype(SteppedWith::gradient)(gradient.getIntrusivePtr()),
                                 static_cast<std::uint32_t>(gradient._version())});
}

bool OptimizerState::gradients_are_new() const {
  std::size_t at = 0;
  for (const auto& group : optimizer_->param_groups())
    for (const at::Tensor& parameter : group.params()) {
      const at::Tensor& gradient = parameter.grad();
      if (!gradient.defined()) continue;
      if (at == stepped_with_.size() ||
          gradient.unsafeGetTensorImpl() != stepped_with_[at].gradient._unsafe_get_target() ||
          static_cast<std::uint32_t>(gradient._version()) != stepped_with_[at].version)
        return true;
      ++at;
    }
  return false;
}

void OptimizerState::refuse_unreduced() const {
  const Site site = site_of(training_->group);
  for (const SyncUnit* unit : units_)
    if (const auto name = unit->touched_outside())
      throw UsageError(
          message(site, "optimizer.step",
                  cat("expected gradients that accel reduced over the ranks, found that parameter '", *name,
                      "' got one from a backward that did not; call accelerator.backward(loss) inside the "
                      "guard of its model, or accelerator.sync(model) after a backward of your own")));
  if (site.size > 1 || (owners_.empty() && training_->steps > 1))
    for (const at::Tensor& parameter : ownerless_)
      if (parameter.grad().defined())
        throw UsageError(
            message(site, "optimizer.step",
                    cat("expected every parameter in a prepared model, found one of shape ", parameter.sizes(),
                        " with a gradient that is in none, so ranks would drift apart; "
                        "prepare its model, or accelerator.refresh(model) if tensors were replaced")));
}

// A parameter may belong to several models: what another one's window holds is accounted for.
bool OptimizerState::has_plain_gradient(const ModelState& owner) const {
  const auto unaccounted = [&](const at::Tensor& parameter) {
    const auto& owners = training_->owners(parameter);
    return std::none_of(owners.begin(), owners.end(),
                        [&](const ModelState* each) { return each != &owner && each->holds_gradients(); });
  };
  if (owner.window.open()) {
    const auto changed = owner.changed_since_marked();
    return std::any_of(changed.begin(), changed.end(), unaccounted);
  }
  return !stepped_since_clear_ &&
         std::any_of(owner.parameters.begin(), owner.parameters.end(), [&](const NamedTensor& parameter) {
           return parameter.tensor.grad().defined() && unaccounted(parameter.tensor);
         });
}

// In a group of one nothing counts gradients, so a plain backward is known by what changed since accel's own last one.
void OptimizerState::refuse_plain_backward(const ModelState& owner) const {
  if (due()) return;
  const bool in_guard = owner.guard != nullptr && !owner.held_in_guard && !owner.guard->skipped;
  if (!in_guard && owner.guard != nullptr) return;
  bool plain = false;
  if (training_->group.size() > 1)
    plain = in_guard && std::any_of(owner.units.begin(), owner.units.end(),
                                    [](const auto& unit) { return unit->touched_outside().has_value(); });
  else if (training_->steps > 1)
    plain = has_plain_gradient(owner);
  if (!plain) return;
  throw UsageError(message(site_of(training_->group), "optimizer.step",
                           cat("expected gradients of accelerator.backward (gradient_accumulation_steps = ",
                               training_->steps, "), found some of a plain backward in ", owner.name,
                               "; call accelerator.backward(loss) inside the guard of the model, or "
                               "accelerator.sync(model) after a backward of your own")));
}

Stepped OptimizerState::step() {
  find_owners();
  for (const ModelState* owner : owners_) refuse_plain_backward(*owner);
  for (const ModelState* owner : owners_)
    if (owner->window.open() && owner->evaluations == 0) return Stepped::kNo;
  for (const ModelState* owner : owners_)
    if (owner->guard != nullptr && !owner->guard->closes && !owner->closed_in_guard) return Stepped::kNo;
  refuse_unreduced();
  const bool at_boundary =
      std::all_of(owners_.begin(), owners_.end(), [](const ModelState* owner) { return owner->at_boundary(); });
  if ((!at_boundary || !due()) && !may_step_plainly()) return Stepped::kNo;
  {
    const AutocastOff autocast_off;
    optimizer_->step();
  }
  perform();
  return Stepped::kYes;
}

void OptimizerState::perform() {
  generation_stepped_ = training_->windows;
  stepped_since_clear_ = true;
  remember_gradients();
  ++steps_;
  for (const auto& callback : callbacks_) callback();
}

at::Tensor OptimizerState::step(const std::function<at::Tensor()>& closure) {
  find_owners();
  const Site site = site_of(training_->group);
  if (training_->steps != 1)
    throw UsageError(
        message(site, "optimizer.step(closure)",
                cat("expected gradient_accumulation_steps = 1, found ", training_->steps,
                    "; a closure is evaluated several times and is a window of its own each time: make the "
                    "Accelerator with 1, or use an optimizer without a closure")));
  if (training_->join)
    throw UsageError(message(site, "optimizer.step(closure)",
                             "expected no join_uneven_inputs guard, found one; a closure is evaluated as often as its "
                             "optimizer wants, which ranks that have run out of data cannot follow: use even batches"));
  if (!closure)
    throw UsageError(message(site, "optimizer.step(closure)",
                             "expected a closure, found an empty function; give one that runs backward and returns "
                             "the loss"));
  const Evaluation evaluation(owners_);
  at::Tensor result = optimizer_->step([&]() -> at::Tensor {
    clear();
    const std::uint64_t before = generation();
    at::Tensor loss = closure();
    if (generation() <= before && !may_step_plainly())
      throw UsageError(message(site, "optimizer.step(closure)",
                               "expected the closure to call accelerator.backward(loss), found that no model of this "
                               "optimizer had a backward; call it in the closure"));
    if (!loss.defined())
      throw UsageError(message(site, "optimizer.step(closure)",
                               "expected the closure to return the loss, found an undefined tensor; end it with "
                               "'return loss;'"));
    if (site.size == 1) return loss;
    refuse_unreduced();
    // Line searches branch on the loss: it must be the same number on all ranks.
    at::Tensor mean = loss.detach().clone();
    all_reduce(mean, {.op = ReduceOp::kAvg, .factor = 1.0, .purpose = Purpose::kControl}, training_->group,
               SourceLocation());
    return mean;
  });
  perform();
  return result;
}

void OptimizerState::zero_grad() {
  if (!stepped_since_clear_) return;
  stepped_since_clear_ = false;
  clear();
}

void OptimizerState::clear() {
  find_owners();
  optimizer_->zero_grad();
  for (SyncUnit* unit : units_) unit->forget_outside();
}

std::string OptimizerState::state_bytes() const {
  torch::serialize::OutputArchive archive;
  optimizer_->save(archive);
  std::ostringstream out;
  archive.save_to(out);
  return out.str();
}

void OptimizerState::take_over(std::int64_t steps, const std::string& bytes) {
  torch::serialize::InputArchive archive;
  std::istringstream in(bytes);
  archive.load_from(in);
  optimizer_->load(archive);
  steps_ = steps;
  generation_stepped_ = training_->windows;
}

}  // namespace accel::detail
