#pragma once

// What Accelerator::prepare is made of; programs do not name these.

#include <accel/data.hpp>
#include <accel/export.hpp>
#include <accel/model.hpp>
#include <accel/optimizer.hpp>
#include <accel/scheduler.hpp>

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace accel::detail {

class AcceleratorImpl;

ACCEL_API LoaderBinding loader_binding(const AcceleratorImpl& accelerator);

template <class T>
inline constexpr bool kIsPointer = false;
template <class T>
inline constexpr bool kIsPointer<std::shared_ptr<T>> = true;
template <class T, class D>
inline constexpr bool kIsPointer<std::unique_ptr<T, D>> = true;

template <class T>
struct Pointee {
  using type = T;
};
template <class T>
struct Pointee<std::shared_ptr<T>> {
  using type = T;
};
template <class T, class D>
struct Pointee<std::unique_ptr<T, D>> {
  using type = T;
};

template <class T>
concept TorchOptimizer = std::is_base_of_v<torch::optim::Optimizer, typename Pointee<T>::type>;

template <class T>
inline constexpr bool kIsLoader = false;
template <class Batch>
inline constexpr bool kIsLoader<DataLoader<Batch>> = true;
template <class Range>
inline constexpr bool kIsLoader<ForeignLoader<Range>> = true;

template <class T>
inline constexpr bool kPrepared = std::is_same_v<T, Optimizer> || std::is_same_v<T, Scheduler>;

template <class T>
concept PlainSchedule = Schedule<typename Pointee<T>::type> && !TorchOptimizer<T> && !kPrepared<T>;

/// A shared pointer to what was given: it owns an rvalue, shares a pointer, refers to an lvalue.
template <class Base, class T>
std::shared_ptr<Base> held(T&& thing) {
  using Plain = std::remove_cvref_t<T>;
  if constexpr (kIsPointer<Plain>)
    return std::shared_ptr<Base>(std::forward<T>(thing));
  else if constexpr (std::is_lvalue_reference_v<T>)
    return std::shared_ptr<Base>(std::shared_ptr<void>(), &thing);
  else
    return std::make_shared<Plain>(std::forward<T>(thing));
}

/// One call of prepare: models first, then optimizers, then the rest, so that the order of arguments does not matter.
class ACCEL_API Preparer {
 public:
  explicit Preparer(std::shared_ptr<AcceleratorImpl> accelerator);
  ~Preparer();
  Preparer(const Preparer&) = delete;
  Preparer& operator=(const Preparer&) = delete;

  template <class T>
  void models(std::remove_reference_t<T>& thing) {
    using Plain = std::remove_cvref_t<T>;
    if constexpr (Model<Plain>) model(ModelRef(thing));
    if constexpr (PlainSchedule<Plain> && !Model<Plain>) ++schedules_;
  }

  template <class T>
  void optimizers(std::remove_reference_t<T>& thing) {
    using Plain = std::remove_cvref_t<T>;
    if constexpr (kPrepared<Plain>) (void)thing.steps();  // refuses an empty one
    if constexpr (std::is_same_v<Plain, Optimizer>) prepared_.push_back(thing);
    if constexpr (TorchOptimizer<Plain>)
      prepared_.push_back(optimizer(held<torch::optim::Optimizer>(static_cast<T&&>(thing))));
  }

  /// What prepare returns for one thing; `T` tells whether it was an lvalue.
  template <class T>
  decltype(auto) finish(std::remove_reference_t<T>& thing) {
    using Plain = std::remove_cvref_t<T>;
    if constexpr (Model<Plain>) {
      return returned_model<T>(thing);
    } else if constexpr (TorchOptimizer<Plain> || std::is_same_v<Plain, Optimizer>) {
      return Optimizer(prepared_.at(next_optimizer_++));
    } else if constexpr (kIsLoader<Plain>) {
      return bound(thing);
    } else if constexpr (std::is_same_v<Plain, Scheduler>) {
      return Scheduler(thing);
    } else if constexpr (PlainSchedule<Plain>) {
      return scheduler(static_cast<T&&>(thing), optimizers_of_next_schedule());
    } else {
      static_assert(sizeof(T) == 0,
                    "prepare() takes models, torch optimizers, accel loaders and objects with step(); "
                    "for a loader that accel did not make use prepare_loader(range, {.already_sharded = true})");
    }
  }

  template <class S>
  Scheduler scheduler(S&& schedule, const std::vector<std::shared_ptr<OptimizerState>>& optimizers) {
    using Plain = typename Pointee<std::remove_cvref_t<S>>::type;
    std::shared_ptr<Plain> object = held<Plain>(std::forward<S>(schedule));
    const void* key = object.get();
    return bind_schedule(
        key, [object = std::move(object)] { object->step(); }, optimizers);
  }

 private:
  void model(const ModelRef& model);
  Optimizer optimizer(std::shared_ptr<torch::optim::Optimizer> optimizer);
  Scheduler bind_schedule(const void* key, std::function<void()> step,
                          const std::vector<std::shared_ptr<OptimizerState>>& optimizers);
  std::vector<std::shared_ptr<OptimizerState>> optimizers_of_next_schedule();

  template <class T>
  static decltype(auto) returned_model(std::remove_reference_t<T>& thing) {
    using Plain = std::remove_cvref_t<T>;
    if constexpr (NnModule<Plain> || HasModelTraits<Plain>) {
      static_assert(std::is_lvalue_reference_v<T>,
                    "a module prepared by reference must outlive the call: name it first");
      return static_cast<std::remove_reference_t<T>&>(thing);
    } else {
      return Plain(thing);
    }
  }

  template <class Loader>
  auto bound(const Loader& loader) const {
    return loader.bind(loader_binding(*accelerator_));
  }

  std::shared_ptr<AcceleratorImpl> accelerator_;
  std::vector<Optimizer> prepared_;
  std::size_t next_optimizer_ = 0;
  std::size_t schedules_ = 0;
  std::size_t next_schedule_ = 0;
};

}  // namespace accel::detail
