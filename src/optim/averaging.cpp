#include <accel/averaging.hpp>

#include "core/message.hpp"
#include "runtime/session.hpp"

#include <accel/error.hpp>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/full.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <utility>

namespace accel {
namespace detail {
namespace {

[[noreturn]] void usage_error(const char* call, const std::string& text) {
  throw UsageError(message(job_site(), call, text));
}

// The pairs of tensors, after a check that they are the same ones.
void check_alike(const std::vector<NamedTensor>& target, const std::vector<NamedTensor>& source, const char* call,
                 const char* remedy) {
  for (std::size_t at = 0; at < std::max(target.size(), source.size()); ++at) {
    const auto describe = [at](const std::vector<NamedTensor>& tensors) {
      if (at >= tensors.size()) return std::string("none");
      const auto& [name, tensor] = tensors[at];
      if (!tensor.defined()) return cat("'", name, "' undefined");
      return cat("'", name, "' ", tensor.sizes(), " ", c10::toString(tensor.scalar_type()), " on ", tensor.device());
    };
    const std::string expected = describe(source);
    const std::string found = describe(target);
    if (expected != found)
      usage_error(call, cat("expected the tensors of the source, whose number ", at + 1, " is ", expected,
                            ", found in the target ", found, "; ", remedy));
  }
}

void move_towards(const std::vector<NamedTensor>& target, const std::vector<NamedTensor>& source, double weight) {
  std::vector<at::Tensor> to;
  std::vector<at::Tensor> from;
  for (std::size_t at = 0; at < target.size(); ++at) {
    if (target[at].tensor.is_same(source[at].tensor)) continue;
    const bool averages = target[at].tensor.is_floating_point() || target[at].tensor.is_complex();
    if (!averages) {
      target[at].tensor.detach().copy_(source[at].tensor.detach());
      continue;
    }
    to.push_back(target[at].tensor.detach());
    from.push_back(source[at].tensor.detach());
  }
  if (!to.empty()) at::_foreach_lerp_(to, from, weight);
}

void copy_all(const std::vector<NamedTensor>& target, const std::vector<NamedTensor>& source) {
  for (std::size_t at = 0; at < target.size(); ++at) target[at].tensor.detach().copy_(source[at].tensor.detach());
}

std::vector<NamedTensor> copies(const std::vector<NamedTensor>& tensors) {
  std::vector<NamedTensor> copied;
  for (const auto& [name, tensor] : tensors) copied.push_back({name, tensor.detach().clone()});
  return copied;
}

constexpr const char* kEmaRemedy = "call reset() after tensors of the model were replaced, added or removed";

}  // namespace

/// What copies of an Ema share.
class EmaState {
 public:
  EmaState(ModelRef model, const EmaOptions& options) : model_(std::move(model)), options_(options) {
    if (!(options.decay >= 0.0 && options.decay < 1.0))
      usage_error("ema", cat("expected decay in [0, 1), found ", options.decay, "; 0.999 is usual"));
    if (options.update_every < 1)
      usage_error("ema", cat("expected update_every >= 1, found ", options.update_every, "; 1 is every call"));
    reset();
  }

  void update() {
    check("ema.update");
    if (++calls_ % options_.update_every != 0) return;
    const at::NoGradGuard no_grad;
    move_towards(parameters_, model_.parameters(), 1.0 - decay());
    copy_all(buffers_, model_.buffers());
    ++updates_;
  }

  void reset() {
    refuse_while_applied("ema.reset");
    const at::NoGradGuard no_grad;
    parameters_ = copies(model_.parameters());
    buffers_ = copies(model_.buffers());
    updates_ = calls_ = 0;
  }

  void begin_exchange() {
    check("ema.apply");
    exchange();
    applied_ = true;
  }
  void end_exchange() {
    exchange();
    applied_ = false;
  }

  void copy_to(const ModelRef& model) const {
    refuse_while_applied("ema.copy_to");
    check_alike(model.parameters(), parameters_, "ema.copy_to", "give a model of the same kind");
    check_alike(model.buffers(), buffers_, "ema.copy_to", "give a model of the same kind");
    const at::NoGradGuard no_grad;
    copy_all(model.parameters(), parameters_);
    copy_all(model.buffers(), buffers_);
  }

  void save(torch::serialize::OutputArchive& archive) const {
    refuse_while_applied("ema save");
    for (const auto& [name, tensor] : parameters_) archive.write(key_of("parameter.", name), tensor);
    for (const auto& [name, tensor] : buffers_) archive.write(key_of("buffer.", name), tensor, true);
    archive.write("updates", c10::IValue(updates_));
    archive.write("calls", c10::IValue(calls_));
  }

  void load(torch::serialize::InputArchive& archive) {
    refuse_while_applied("ema load");
    const auto read = [&archive](const char* kind, const std::vector<NamedTensor>& mine) {
      std::vector<NamedTensor> there;
      for (const auto& [name, tensor] : mine) {
        NamedTensor& entry = there.emplace_back(NamedTensor{name, at::Tensor()});
        if (archive.try_read(key_of(kind, name), entry.tensor, kind == kBuffer))
          entry.tensor = entry.tensor.to(tensor.device());
      }
      return there;
    };
    const auto parameters = read(kParameter, parameters_);
    const auto buffers = read(kBuffer, buffers_);
    check_alike(parameters_, parameters, "ema load", "load an archive of the same model");
    check_alike(buffers_, buffers, "ema load", "load an archive of the same model");
    c10::IValue updates;
    c10::IValue calls;
    archive.read("updates", updates);
    archive.read("calls", calls);
    const at::NoGradGuard no_grad;
    copy_all(parameters_, parameters);
    copy_all(buffers_, buffers);
    updates_ = updates.toInt();
    calls_ = calls.toInt();
  }

  [[nodiscard]] double decay() const {
    if (!options_.warmup) return options_.decay;
    const auto next = static_cast<double>(updates_ + 1);
    return std::min(options_.decay, next / (next + 9.0));
  }
  [[nodiscard]] std::int64_t updates() const { return updates_; }
  [[nodiscard]] const std::vector<NamedTensor>& parameters() const { return parameters_; }
  [[nodiscard]] const std::vector<NamedTensor>& buffers() const { return buffers_; }

 private:
  static constexpr const char* kParameter = "parameter.";
  static constexpr const char* kBuffer = "buffer.";

  // Names of an archive's entries hold no dots.
  static std::string key_of(const char* kind, std::string name) {
    std::replace(name.begin(), name.end(), '.', '/');
    return kind[0] + std::string("/") + name;
  }

  void refuse_while_applied(const char* call) const {
    if (applied_)
      usage_error(call,
                  "expected the average in its place, found an apply() guard alive, under which the model has it; "
                  "leave the guard's scope first");
  }

  void check(const char* call) const {
    refuse_while_applied(call);
    check_alike(parameters_, model_.parameters(), call, kEmaRemedy);
    check_alike(buffers_, model_.buffers(), call, kEmaRemedy);
  }

  void exchange() {
    const at::NoGradGuard no_grad;
    const auto swap_all = [](const std::vector<NamedTensor>& mine, const std::vector<NamedTensor>& theirs) {
      for (std::size_t at = 0; at < std::min(mine.size(), theirs.size()); ++at) {
        const at::Tensor model = theirs[at].tensor.detach();
        const at::Tensor kept = model.clone();
        model.copy_(mine[at].tensor);
        mine[at].tensor.copy_(kept);
      }
    };
    swap_all(parameters_, model_.parameters());
    swap_all(buffers_, model_.buffers());
  }

  ModelRef model_;
  EmaOptions options_;
  std::vector<NamedTensor> parameters_;
  std::vector<NamedTensor> buffers_;
  std::int64_t updates_ = 0;
  std::int64_t calls_ = 0;
  bool applied_ = false;
};

}  // namespace detail

void polyak_update(const ModelRef& target, const ModelRef& source, double tau) {
  constexpr const char* kCall = "polyak_update";
  constexpr const char* kRemedy = "give two models of one kind";
  if (!(tau >= 0.0 && tau <= 1.0))
    detail::usage_error(kCall, detail::cat("expected tau in [0, 1], found ", tau, "; 0.005 is usual"));
  const auto to = target.parameters();
  const auto from = source.parameters();
  const auto to_buffers = target.buffers();
  const auto from_buffers = source.buffers();
  detail::check_alike(to, from, kCall, kRemedy);
  detail::check_alike(to_buffers, from_buffers, kCall, kRemedy);
  const at::NoGradGuard no_grad;
  detail::move_towards(to, from, tau);
  detail::copy_all(to_buffers, from_buffers);
}

Ema::Ema(std::shared_ptr<detail::EmaState> state) : state_(std::move(state)) {}
void Ema::update() {
  state_->update();
}
void Ema::reset() {
  state_->reset();
}
Ema::Applied Ema::apply() {
  return Applied(state_);
}
void Ema::copy_to(const ModelRef& model) const {
  state_->copy_to(model);
}
double Ema::decay() const {
  return state_->decay();
}
std::int64_t Ema::updates() const {
  return state_->updates();
}
std::vector<NamedTensor> Ema::parameters() const {
  return state_->parameters();
}
std::vector<NamedTensor> Ema::buffers() const {
  return state_->buffers();
}

Ema::Applied::Applied(std::shared_ptr<detail::EmaState> state) : state_(std::move(state)) {
  state_->begin_exchange();
}
Ema::Applied::~Applied() {
  state_->end_exchange();
}

Ema ema(const ModelRef& model, const EmaOptions& options) {
  return Ema(std::make_shared<detail::EmaState>(model, options));
}

torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive, const Ema& average) {
  average.impl().save(archive);
  return archive;
}
torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive, Ema& average) {
  average.impl().load(archive);
  return archive;
}

}  // namespace accel
