#pragma once

#include <accel/export.hpp>
#include <accel/model.hpp>

#include <cstdint>
#include <memory>
#include <vector>

namespace torch::serialize {
class InputArchive;
class OutputArchive;
}  // namespace torch::serialize

namespace accel {

namespace detail {
class EmaState;
}

/// Moves the parameters of `target` towards those of `source`: target = (1 - tau) target + tau source, in place, in
/// their own dtype, tied ones once. Buffers are copied. For target networks, after a performed step of the source's
/// optimizer.
///
/// Local: with models that are equal on all ranks it gives equal targets.
/// @param target  a model of the same parameters and buffers (names, shapes, dtypes, devices) as `source`; needs no
///                prepare
/// @param tau     in [0, 1]; 1 copies
///
/// Source: Polyak and Juditsky, Acceleration of Stochastic Approximation by Averaging, 1992; as target networks:
/// Lillicrap et al., Continuous control with deep reinforcement learning, 2015.
/// @throws UsageError  tau out of range; the models differ (names the tensor). Nothing was changed.
ACCEL_API void polyak_update(const ModelRef& target, const ModelRef& source, double tau);

/// How an exponential moving average follows its model.
struct EmaOptions {
  double decay = 0.999;  ///< what is kept of the average at each update; in [0, 1)
  /// Begin faster: the decay of update number t (from 1) is at most t / (t + 9), so that the first weights do not hold
  /// the average back. Source: tf.train.ExponentialMovingAverage (num_updates).
  bool warmup = false;
  std::int64_t update_every = 1;  ///< calls of `update` between two that change the average; >= 1
};

class Ema;

/// Begins an average with the model's weights as they are now. Call it after prepare, when they are equal on all ranks.
/// The model is referred to as by prepare: a module given by reference must outlive the average.
/// @throws UsageError  an option is out of range (names it).
[[nodiscard]] ACCEL_API Ema ema(const ModelRef& model, const EmaOptions& options = {});

/// `torch::save(average, path)`, `torch::load(average, path)`: tensors, their names, and the number of updates.
/// @throws UsageError  the archive is of another model (names, shapes) or of something else; the average is unchanged.
ACCEL_API torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive, const Ema& average);
ACCEL_API torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive, Ema& average);

/// An average of a model's weights over training, for evaluation. A handle: copies refer to the same average. Made by
/// `accel::ema`. It is a model of named tensors itself: its `parameters()` and `buffers()` have the names of the
/// model's, tied ones once.
///
/// @code
/// auto average = accel::ema(model, {.decay = 0.999});
/// accelerator.on_step(optimizer, [average]() mutable { average.update(); });   // after each performed step
/// ...
/// {
///   const auto averaged = average.apply();   // in this scope the model has the averaged weights
///   evaluate(model);
/// }
/// @endcode
/// The averaged parameters are equal on all ranks without communication, as those of the model are: it is made after
/// prepare and updated after steps. Buffers that a forward changes (BatchNorm) are each rank's own between two windows,
/// and so are their copies here: `accel::broadcast_parameters(average)` before an evaluation makes them rank 0's
/// everywhere. Averages of 16-bit parameters are kept in float32, in which small steps are not rounded away.
class ACCEL_API Ema {
 public:
  /// The model has the averaged weights while it lives, and its own again after.
  class [[nodiscard(
      "the averaged weights hold while the guard lives: const auto averaged = average.apply();")]] ACCEL_API Applied {
   public:
    ~Applied();
    Applied(const Applied&) = delete;
    Applied& operator=(const Applied&) = delete;

   private:
    friend class Ema;
    explicit Applied(std::shared_ptr<detail::EmaState> state);
    std::shared_ptr<detail::EmaState> state_;
  };

  /// average = decay average + (1 - decay) model; buffers become the model's. Local.
  /// @throws UsageError  the model's tensors have other names or shapes than the average (`reset` is the remedy), or an
  ///                     `apply` guard lives.
  void update();

  /// Begins anew with the model's weights as they are now.
  void reset();

  /// Writes the averaged weights into the model, and its own back when the guard is gone: into the same tensors, also
  /// where the model has others by then. Needs room for the model's weights once more.
  /// @throws UsageError  as update.
  [[nodiscard]] Applied apply();

  /// Writes the averaged weights into another model of the same names and shapes, in its dtypes and on its device.
  void copy_to(const ModelRef& model) const;

  [[nodiscard]] double decay() const;          ///< of the next update that changes the average
  [[nodiscard]] std::int64_t updates() const;  ///< that changed it, since it was made or reset
  [[nodiscard]] std::vector<NamedTensor> parameters() const;
  [[nodiscard]] std::vector<NamedTensor> buffers() const;

 private:
  friend Ema accel::ema(const ModelRef& model, const EmaOptions& options);
  friend torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive, const Ema& average);
  friend torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive, Ema& average);
  explicit Ema(std::shared_ptr<detail::EmaState> state);

  std::shared_ptr<detail::EmaState> state_;
};

template <>
struct ModelTraits<Ema> {
  static std::vector<NamedTensor> parameters(const Ema& average) { return average.parameters(); }
  static std::vector<NamedTensor> buffers(const Ema& average) { return average.buffers(); }
};

}  // namespace accel
