#include "optim/training_state.hpp"

#include <ATen/core/grad_mode.h>

namespace accel::detail {

bool ModelState::at_boundary() const {
  if (evaluations > 0) return true;
  if (guard != nullptr) return closed_in_guard;
  return !window.open();
}

void ModelState::mark_gradients() {
  marks_.resize(parameters.size());
  for (std::size_t each = 0; each < parameters.size(); ++each) {
    const at::Tensor& gradient = parameters[each].tensor.grad();
    marks_[each] = gradient.defined()
                       ? Mark{gradient.unsafeGetTensorImpl(), static_cast<std::uint32_t>(gradient._version())}
                       : Mark{};
  }
}

std::optional<std::string> ModelState::cleared_parameter() const {
  if (marks_.size() != parameters.size()) return std::nullopt;
  for (std::size_t each = 0; each < parameters.size(); ++each) {
    const Mark& mark = marks_[each];
    if (mark.gradient == nullptr) continue;
    const at::Tensor& gradient = parameters[each].tensor.grad();
    if (!gradient.defined()) return parameters[each].name;
    const bool touched = gradient.unsafeGetTensorImpl() != mark.gradient ||
                         static_cast<std::uint32_t>(gradient._version()) != mark.version;
    // Only what was written to is worth a look at its values; zeros written in place are a clear too.
    if (touched && !gradient.ne(0).any().item<bool>()) return parameters[each].name;
  }
  return std::nullopt;
}

std::vector<at::Tensor> ModelState::changed_since_marked() const {
  std::vector<at::Tensor> changed;
  if (marks_.size() != parameters.size()) return changed;
  for (std::size_t each = 0; each < parameters.size(); ++each) {
    const at::Tensor& gradient = parameters[each].tensor.grad();
    const Mark now = gradient.defined()
                         ? Mark{gradient.unsafeGetTensorImpl(), static_cast<std::uint32_t>(gradient._version())}
                         : Mark{};
    if (now.gradient != marks_[each].gradient || now.version != marks_[each].version)
      changed.push_back(parameters[each].tensor);
  }
  return changed;
}

void ModelState::drop_window() {
  for (const auto& unit : units) unit->drop_window();
  for (const NamedTensor& parameter : parameters) parameter.tensor.mutable_grad() = at::Tensor();
  window.reset();
  marks_.clear();
  more_open = false;
  divided_by = 1.0;
}

ModelState* TrainingState::find(const void* key) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? nullptr : found->second;
}

const std::vector<ModelState*>& TrainingState::owners(const at::Tensor& parameter) const {
  static const std::vector<ModelState*> nobody;
  const auto found = by_parameter_.find(parameter.unsafeGetTensorImpl());
  return found == by_parameter_.end() ? nobody : found->second.owners;
}

SyncUnit* TrainingState::unit_of(const at::Tensor& parameter) const {
  const auto found = by_parameter_.find(parameter.unsafeGetTensorImpl());
  return found == by_parameter_.end() ? nullptr : found->second.unit;
}

void TrainingState::index() {
  ++version;
  by_parameter_.clear();
  by_key_.clear();
  for (const auto& model : models) {
    by_key_[model->ref.key()] = model.get();
    for (const NamedTensor& parameter : model->parameters) {
      auto& owners = by_parameter_[parameter.tensor.unsafeGetTensorImpl()].owners;
      if (owners.empty() || owners.back() != model.get()) owners.push_back(model.get());
    }
    for (const auto& unit : model->units)
      for (const NamedTensor& parameter : unit->parameters())
        by_parameter_[parameter.tensor.unsafeGetTensorImpl()].unit = unit.get();
  }
}

}  // namespace accel::detail
