#pragma once

#include <accel/loader_binding.hpp>
#include <accel/to_device.hpp>

#include <cstddef>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace accel {

/// The iterator of accel's loaders: one pass, move-only. It holds the batch at hand; `Source` reads the next one and
/// knows, after a read, whether anything is left (`using Batch`, `bool done()`, `Batch read()`, and where it knows
/// `optional<BatchRows> rows()` of the batch that was read last).
///
/// The accelerator is told that a batch is the last one before that batch is handed out, and it forgets this loader
/// when the pass is exhausted or this iterator destroyed (break, return, exception).
template <class Source>
class LoaderPass {
 public:
  using Batch = typename Source::Batch;
  using value_type = Batch;
  using difference_type = std::ptrdiff_t;
  using iterator_concept = std::input_iterator_tag;

  LoaderPass(Source source, const detail::LoaderBinding& binding) {
    if (source.done()) {  // nothing to hand out: the accelerator must not see a loader that never was
      if constexpr (requires { source.exhausted(); }) source.exhausted();
      if (binding.active) binding.active->empty_pass();
      return;
    }
    state_ = std::make_unique<State>(std::move(source), binding);
    advance();
  }

  Batch& operator*() const { return *state_->batch; }
  Batch* operator->() const { return &*state_->batch; }

  LoaderPass& operator++() {
    advance();
    return *this;
  }
  void operator++(int) { advance(); }

  friend bool operator==(const LoaderPass& pass, std::default_sentinel_t) { return pass.state_ == nullptr; }

 private:
  struct State {
    State(Source from, const detail::LoaderBinding& binding)
        : source(std::move(from)),
          scope(binding.active, uneven_text(source)),
          device(binding.active && binding.device_placement ? std::optional(binding.device) : std::nullopt) {}

    static std::string uneven_text(const Source& source) {
      if constexpr (requires { source.uneven(); }) return source.uneven();
      return {};
    }

    Source source;
    detail::ActiveScope scope;
    std::optional<c10::Device> device;
    std::optional<Batch> batch;
  };

  [[nodiscard]] bool non_blocking() const {
    if constexpr (requires { state_->source.non_blocking(); }) return state_->source.non_blocking();
    return false;
  }

  void advance() {
    if (state_->batch && state_->source.done()) {
      const std::unique_ptr<State> over = std::move(state_);  // over, whatever a guard throws
      if constexpr (requires { over->source.exhausted(); }) over->source.exhausted();
      over->scope.exhausted();
      return;
    }
    state_->batch.emplace(state_->source.read());
    if (state_->device) detail::place(*state_->batch, *state_->device, non_blocking());
    std::optional<detail::BatchRows> rows;
    if constexpr (requires { state_->source.rows(); }) rows = state_->source.rows();
    state_->scope.set_batch(state_->source.done(), rows);
  }

  std::unique_ptr<State> state_;
};

}  // namespace accel
