#include <accel/averaging.hpp>

#include "core/log.hpp"
#include "core/message.hpp"
#include "grad/unique_tensors.hpp"
#include "runtime/session.hpp"

#include <accel/error.hpp>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_lerp.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace accel {
namespace detail {
namespace {

enum class Compare { kNamesAndShapes, kDtypesToo };

// Throws where the lists are not those of one kind of model.
void check_alike(const std::vector<NamedTensor>& target, const std::vector<NamedTensor>& source, Compare compare,
                 const char* call, const char* remedy) {
  for (std::size_t at = 0; at < std::max(target.size(), source.size()); ++at) {
    const auto describe = [&](const std::vector<NamedTensor>& tensors) {
      if (at >= tensors.size()) return std::string("none");
      const auto& [name, tensor] = tensors[at];
      if (!tensor.defined()) return cat("'", name, "' undefined");
      std::string text = cat("'", name, "' ", tensor.sizes());
      if (compare == Compare::kDtypesToo)
        text += cat(" ", c10::toString(tensor.scalar_type()), " on ", tensor.device());
      return text;
    };
    const std::string expected = describe(source);
    const std::string found = describe(target);
    if (expected != found)
      job_usage_error(call, cat("expected the tensors of the source, whose number ", at + 1, " is ", expected,
                                ", found in the target ", found, "; ", remedy));
  }
}

void move_towards(const std::vector<NamedTensor>& target, const std::vector<NamedTensor>& source, double weight) {
  std::vector<at::Tensor> to;
  std::vector<at::Tensor> from;
  for (std::size_t at = 0; at < target.size(); ++at) {
    const at::Tensor& tensor = target[at].tensor;
    if (tensor.is_same(source[at].tensor)) continue;
    if (!tensor.is_floating_point() && !tensor.is_complex()) {
      tensor.detach().copy_(source[at].tensor.detach());
      continue;
    }
    to.push_back(tensor.detach());
    from.push_back(source[at].tensor.detach().to(tensor.options().requires_grad(false)));
  }
  if (!to.empty()) at::_foreach_lerp_(to, from, weight);
}

void copy_all(const std::vector<NamedTensor>& target, const std::vector<NamedTensor>& source) {
  for (std::size_t at = 0; at < target.size(); ++at) target[at].tensor.detach().copy_(source[at].tensor.detach());
}

// Small steps of an average would be rounded away in 16 bits.
c10::ScalarType dtype_of_average(c10::ScalarType of_model) {
  return of_model == c10::kHalf || of_model == c10::kBFloat16 ? c10::kFloat : of_model;
}

std::vector<NamedTensor> averages_of(const std::vector<NamedTensor>& tensors) {
  std::vector<NamedTensor> copies;
  for (const auto& [name, tensor] : tensors)
    copies.push_back({name, tensor.detach().to(dtype_of_average(tensor.scalar_type()), false, /*copy=*/true)});
  return copies;
}

constexpr const char* kReset = "call reset() after tensors of the model were replaced, added or removed";
constexpr const char* kOneKind = "give a model of the same kind";

}  // namespace

/// What copies of an Ema share.
class EmaState {
 public:
  EmaState(ModelRef model, const EmaOptions& options) : model_(std::move(model)), options_(options) {
    if (!(options.decay >= 0.0 && options.decay < 1.0))
      job_usage_error("ema", cat("expected decay in [0, 1), found ", options.decay, "; 0.999 is usual"));
    if (options.update_every < 1)
      job_usage_error("ema", cat("expected update_every >= 1, found ", options.update_every, "; 1 is every call"));
    reset();
  }

  void update() {
    check("ema.update");
    if (++calls_ % options_.update_every != 0) return;
    const at::NoGradGuard no_grad;
    move_towards(parameters_, model_parameters(), 1.0 - decay());
    copy_all(buffers_, model_buffers());
    ++updates_;
  }

  void reset() {
    refuse_while_applied("ema.reset");
    const at::NoGradGuard no_grad;
    parameters_ = averages_of(model_parameters());
    buffers_ = averages_of(model_buffers());
    updates_ = calls_ = 0;
  }

  void begin_apply() {
    check("ema.apply");
    const at::NoGradGuard no_grad;
    kept_.clear();
    for (const auto& list : {model_parameters(), model_buffers()})
      for (const auto& [name, tensor] : list) kept_.emplace_back(tensor.detach(), tensor.detach().clone());
    applied_ = true;
    try {
      copy_all(model_parameters(), parameters_);
      copy_all(model_buffers(), buffers_);
    } catch (...) {
      end_apply();
      throw;
    }
  }

  void end_apply() noexcept {
    applied_ = false;
    try {
      const at::NoGradGuard no_grad;
      for (const auto& [tensor, contents] : std::exchange(kept_, {})) tensor.copy_(contents);
    } catch (const std::exception& error) {
      log(LogLevel::kError, job_site(), "ema.apply",
          cat("the model's own weights could not be restored: ", error.what()));
    }
  }

  void copy_to(const ModelRef& model) const {
    const auto parameters = unique_tensors(model.parameters());
    const auto buffers = unique_tensors(model.buffers());
    check_alike(parameters, parameters_, Compare::kNamesAndShapes, "ema.copy_to", kOneKind);
    check_alike(buffers, buffers_, Compare::kNamesAndShapes, "ema.copy_to", kOneKind);
    const at::NoGradGuard no_grad;
    copy_all(parameters, parameters_);
    copy_all(buffers, buffers_);
  }

  void save(torch::serialize::OutputArchive& archive) const {
    write_list(archive, "parameter", parameters_);
    write_list(archive, "buffer", buffers_);
    archive.write("updates", c10::IValue(updates_));
    archive.write("calls", c10::IValue(calls_));
  }

  void load(torch::serialize::InputArchive& archive) {
    c10::IValue updates;
    c10::IValue calls;
    if (!archive.try_read("updates", updates) || !archive.try_read("calls", calls))
      job_usage_error("ema load",
                      "expected an archive of an average, found another one; load what torch::save(average, "
                      "...) wrote");
    const auto parameters = read_list(archive, "parameter");
    const auto buffers = read_list(archive, "buffer");
    constexpr const char* kRemedy = "load an archive of the same model";
    check_alike(parameters_, parameters, Compare::kNamesAndShapes, "ema load", kRemedy);
    check_alike(buffers_, buffers, Compare::kNamesAndShapes, "ema load", kRemedy);
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
  [[nodiscard]] std::vector<NamedTensor> model_parameters() const { return unique_tensors(model_.parameters()); }
  [[nodiscard]] std::vector<NamedTensor> model_buffers() const { return unique_tensors(model_.buffers()); }

  // Entries of an archive have no dots in their keys, and names of tensors do.
  static void write_list(torch::serialize::OutputArchive& archive, const std::string& kind,
                         const std::vector<NamedTensor>& tensors) {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors) {
      archive.write(cat(kind, "_", names.size()), tensor, /*is_buffer=*/true);
      names.push_back(name);
    }
    archive.write(kind + "_names", c10::IValue(names));
  }

  static std::vector<NamedTensor> read_list(torch::serialize::InputArchive& archive, const std::string& kind) {
    c10::IValue names;
    archive.read(kind + "_names", names);
    std::vector<NamedTensor> tensors;
    for (const c10::IValue& name : names.toListRef()) {
      at::Tensor tensor;
      archive.read(cat(kind, "_", tensors.size()), tensor, /*is_buffer=*/true);
      tensors.push_back({name.toStringRef(), tensor});
    }
    return tensors;
  }

  void refuse_while_applied(const char* call) const {
    if (applied_)
      job_usage_error(call,
                      "expected the model with weights of its own, found an apply() guard alive, under which it has "
                      "the average; leave the guard's scope first");
  }

  void check(const char* call) const {
    refuse_while_applied(call);
    check_alike(parameters_, model_parameters(), Compare::kNamesAndShapes, call, kReset);
    check_alike(buffers_, model_buffers(), Compare::kNamesAndShapes, call, kReset);
  }

  ModelRef model_;
  EmaOptions options_;
  std::vector<NamedTensor> parameters_;
  std::vector<NamedTensor> buffers_;
  std::int64_t updates_ = 0;
  std::int64_t calls_ = 0;
  std::vector<std::pair<at::Tensor, at::Tensor>> kept_;  ///< the model's tensors under a guard, and their own contents
  bool applied_ = false;
};

}  // namespace detail

void polyak_update(const ModelRef& target, const ModelRef& source, double tau) {
  using namespace detail;
  constexpr const char* kCall = "polyak_update";
  if (!(tau >= 0.0 && tau <= 1.0))
    job_usage_error(kCall, cat("expected tau in [0, 1], found ", tau, "; 0.005 is usual"));
  const auto to = unique_tensors(target.parameters());
  const auto from = unique_tensors(source.parameters());
  const auto to_buffers = unique_tensors(target.buffers());
  const auto from_buffers = unique_tensors(source.buffers());
  check_alike(to, from, Compare::kDtypesToo, kCall, kOneKind);
  check_alike(to_buffers, from_buffers, Compare::kDtypesToo, kCall, kOneKind);
  const at::NoGradGuard no_grad;
  move_towards(to, from, tau);
  copy_all(to_buffers, from_buffers);
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
  state_->begin_apply();
}
Ema::Applied::~Applied() {
  state_->end_apply();
}

Ema ema(const ModelRef& model, const EmaOptions& options) {
  return Ema(std::make_shared<detail::EmaState>(model, options));
}

torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive, const Ema& average) {
  average.state_->save(archive);
  return archive;
}
torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive, Ema& average) {
  average.state_->load(archive);
  return archive;
}

}  // namespace accel
