#pragma once

#include "comm/reduce_buffer.hpp"
#include "device/libtorch_compat.hpp"
#include "grad/bucket_layout.hpp"

#include <accel/model.hpp>

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace accel::detail {

class Round;

/// Parameters whose gradients are reduced together, in flat buckets of which their `.grad` are views. Each parameter of
/// a group of ranks belongs to exactly one unit. Exists only in groups of more than one rank.
///
/// A post hook on each parameter's AccumulateGrad node tells when its gradient of this backward is complete. Hooks do
/// what the mode says:
///   kOutside  a backward that accel did not start, or one for other models: only noted
///   kQuiet    a micro-batch that does not sync: the gradient moves into its view, nothing is sent
///   kRound    a round is open: complete buckets are sent
class SyncUnit : public std::enable_shared_from_this<SyncUnit> {
 public:
  enum class Mode { kOutside, kQuiet, kRound };

  /// @param name  of the model, for error texts.
  static std::shared_ptr<SyncUnit> create(std::string name, std::vector<NamedTensor> parameters, BucketLimits limits);
  SyncUnit(const SyncUnit&) = delete;
  SyncUnit& operator=(const SyncUnit&) = delete;
  ~SyncUnit() = default;

  [[nodiscard]] const std::vector<NamedTensor>& parameters() const { return named_; }

  /// Names, shapes, dtypes and trainability of the parameters, hashed: equal on ranks that can reduce together.
  [[nodiscard]] std::uint64_t signature() const { return signature_; }
  /// What the signature hashes, for error texts: one line a parameter.
  [[nodiscard]] std::string description() const;

  /// Lays the buckets out anew if a parameter was frozen or thawed since.
  void follow_requires_grad();

  /// The buckets lie where the group reduces them fastest.
  [[nodiscard]] bool placed() const { return placed_; }
  /// Moves them there; wanted once after each layout. Collective, by all ranks if one of them wants it.
  void place(const Group& group);

  /// Lays the buckets out anew in this order of parameters (see order_reached).
  void reorder(const std::vector<std::int64_t>& order);
  /// The order in which gradients became ready in the last round; parameters that were not reached follow.
  [[nodiscard]] std::vector<std::int64_t> order_reached() const;
  /// A round has shown the order, it was not applied yet, and there is more than one bucket to gain from it.
  [[nodiscard]] bool wants_reorder() const { return rounds_ == 1 && buckets_.size() > 1; }

  /// Windows reduced so far.
  [[nodiscard]] std::uint64_t generation() const { return generation_; }

  /// The first parameter whose gradient changed outside of what this unit reduced since: a plain `loss.backward()`, or
  /// a backward for other models. Nothing if there is none.
  [[nodiscard]] std::optional<std::string> touched_outside() const;
  void forget_outside();

  void set_mode(Mode mode, Round* round = nullptr);
  [[nodiscard]] Mode mode() const { return mode_; }

  /// Notes the parameters whose `.grad` is there as used in this window: for gradients that no hook saw.
  void use_what_is_there();

  /// Takes over from the units it replaces which parameters were used in the open window.
  void inherit(const SyncUnit& earlier);

  /// Drops all gradients and what was noted of the window.
  void drop_window();

  [[nodiscard]] std::int64_t gradient_bytes() const;

 private:
  friend class Round;

  struct Parameter {
    at::Tensor tensor;
    at::Tensor view;  ///< into its bucket; undefined while frozen
    NodePtr node;     ///< keeps the hook alive
    std::size_t bucket = 0;
    std::atomic<bool> used{false};  ///< reached in this window
    bool seen = false;              ///< reached in this round
    bool late = false;              ///< reached again after its bucket was sent
    bool trainable = false;

    /// Data of another dtype, shape or device was put into the tensor otherwise.
    [[nodiscard]] bool fits_view() const {
      return view.defined() && view.scalar_type() == tensor.scalar_type() && view.device() == tensor.device() &&
             view.sizes() == tensor.sizes();
    }
  };
  struct FlatBucket {
    at::Tensor flat;
    std::shared_ptr<ReduceBuffer> buffer;  ///< of flat; null until placed
    std::vector<Bucket::Slot> slots;
    std::vector<std::size_t> parameters;
    std::size_t pending = 0;  ///< parameters not yet reached in this round
    bool sent = false;
  };

  SyncUnit(std::string name, std::vector<NamedTensor> parameters, BucketLimits limits);
  void attach(std::size_t index);
  void reached(std::size_t index);
  void lay_out();
  void make_views(const FlatBucket& bucket);
  void sign();
  void move_into_view(Parameter& parameter) const;
  [[nodiscard]] const std::string& name_of(std::size_t index) const { return named_[index].name; }

  std::string name_;
  std::vector<NamedTensor> named_;
  std::unique_ptr<Parameter[]> parameters_;
  BucketLimits limits_;
  std::vector<std::size_t> order_;
  std::vector<FlatBucket> buckets_;
  std::vector<std::size_t> reached_order_;
  bool placed_ = false;
  std::uint64_t signature_ = 0;
  std::uint64_t generation_ = 0;
  std::uint64_t rounds_ = 0;
  std::atomic<std::int64_t> outside_{-1};
  bool send_after_backward_ = false;  ///< gradients came in twice once (re-entrant backward): overlap would resend them
  std::mutex gate_;  ///< hooks run in the threads of autograd's devices; a round must not end under one
  Mode mode_ = Mode::kOutside;
  Round* round_ = nullptr;
};

}  // namespace accel::detail
