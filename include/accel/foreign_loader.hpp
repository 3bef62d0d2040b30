#pragma once

#include <accel/export.hpp>
#include <accel/loader_pass.hpp>

#include <concepts>
#include <cstddef>
#include <iterator>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace accel {

/// What only the caller knows about a loader that is not accel's.
struct ForeignLoaderOptions {
  /// Every rank reads its own part already. Must be said where there is more than one rank: accel cannot shard a loader
  /// it does not know, and equal batches on all ranks would train on each of them `size` times.
  bool already_sharded = false;
};

namespace detail {

/// @throws UsageError  several ranks and `already_sharded` not declared.
ACCEL_API void check_foreign(const LoaderBinding& binding, const ForeignLoaderOptions& options);

/// @throws UsageError  always: the pointer to a range is null.
[[noreturn]] ACCEL_API void refuse_null_loader(const LoaderBinding& binding);

namespace range_access {
using std::begin;
using std::end;

template <class R>
concept Direct = requires(R& range) {
  static_cast<bool>(begin(range) != end(range));
  *begin(range);
};

template <class R>
auto begin_of(R& range) {
  return begin(range);
}
template <class R>
auto end_of(R& range) {
  return end(range);
}
}  // namespace range_access

template <class R>
concept PointerToRange = !range_access::Direct<R> && requires(R & range) {
  requires range_access::Direct<std::remove_reference_t<decltype(*range)>>;
};

/// The range itself, or what a smart or plain pointer to one points to (`torch::data::make_data_loader` returns such).
template <class R>
auto& range_of(R& range) {
  if constexpr (range_access::Direct<R>)
    return range;
  else
    return *range;
}

/// Reads one batch ahead, which is how a loader without a length knows its last batch.
template <class R>
class ForeignSource {
 public:
  using Iterator = decltype(range_access::begin_of(range_of(std::declval<R&>())));
  using Sentinel = decltype(range_access::end_of(range_of(std::declval<R&>())));
  using Batch = std::remove_cvref_t<decltype(*std::declval<Iterator&>())>;

  explicit ForeignSource(std::shared_ptr<R> range)
      : range_(std::move(range)),
        at_(range_access::begin_of(range_of(*range_))),
        end_(range_access::end_of(range_of(*range_))) {}

  [[nodiscard]] bool done() { return !(at_ != end_); }
  Batch read() {
    Batch batch = current();
    ++at_;
    return batch;
  }

 private:
  // Copies what belongs to the caller's container; tensors in it are shared either way.
  Batch current() {
    if constexpr (std::copy_constructible<Batch>)
      return Batch(*at_);
    else
      return Batch(std::move(*at_));
  }

  std::shared_ptr<R> range_;
  Iterator at_;
  Sentinel end_;
};

}  // namespace detail

/// A range of batches, or a pointer of any kind to one.
template <class R>
concept BatchRange =
    detail::range_access::Direct<std::remove_reference_t<R>> || detail::PointerToRange<std::remove_reference_t<R>>;

/// A loader of another library, or any range of batches, as accel's loops want it: its last batch is known before it is
/// handed out, batches are placed, and leaving the loop is noticed. Made by `Accelerator::prepare_loader`. A range
/// given as an lvalue is referred to and must outlive the loader. Each `begin()` is a new pass over the range; copies
/// share it.
///
/// One batch is read before it is asked for.
template <class Range>
class ForeignLoader {
 public:
  using Iterator = LoaderPass<detail::ForeignSource<Range>>;
  using Batch = typename Iterator::Batch;

  /// @throws UsageError  several ranks and `already_sharded` not declared; a null pointer.
  template <class R>
  explicit ForeignLoader(R&& range, detail::LoaderBinding binding = {},
                         const ForeignLoaderOptions& options = {}) requires std::same_as<std::remove_cvref_t<R>, Range>
      : range_(hold(std::forward<R>(range))), binding_(std::move(binding)), options_(options) {
    if constexpr (requires(Range & pointer) { pointer == nullptr; })
      if (*range_ == nullptr) detail::refuse_null_loader(binding_);
    detail::check_foreign(binding_, options_);
  }

  [[nodiscard]] Iterator begin() const { return Iterator(detail::ForeignSource<Range>(range_), binding_); }
  [[nodiscard]] std::default_sentinel_t end() const { return {}; }

  /// The batches of a pass on this rank, where the range knows.
  [[nodiscard]] std::size_t size() const requires requires(Range& range) {
    { detail::range_of(range).size() } -> std::convertible_to<std::size_t>;
  }
  { return static_cast<std::size_t>(detail::range_of(*range_).size()); }

  /// The same range for another accelerator. @throws UsageError  as the constructor.
  [[nodiscard]] ForeignLoader bind(const detail::LoaderBinding& binding) const {
    detail::check_foreign(binding, options_);
    ForeignLoader other = *this;
    other.binding_ = binding;
    return other;
  }

 private:
  template <class R>
  static std::shared_ptr<Range> hold(R&& range) {
    if constexpr (std::is_same_v<R, Range&>)
      return std::shared_ptr<Range>(std::shared_ptr<void>(), &range);
    else
      return std::make_shared<Range>(std::forward<R>(range));
  }

  std::shared_ptr<Range> range_;
  detail::LoaderBinding binding_;
  ForeignLoaderOptions options_;
};

template <class R>
ForeignLoader(R&&, detail::LoaderBinding, const ForeignLoaderOptions&) -> ForeignLoader<std::remove_cvref_t<R>>;
template <class R>
ForeignLoader(R&&, detail::LoaderBinding) -> ForeignLoader<std::remove_cvref_t<R>>;

/// A range over what `next` returns until it returns nothing; a new pass starts calling it again. It reads nothing
/// before it is asked for.
template <class F>
class PullRange {
 public:
  using Batch = typename std::invoke_result_t<F&>::value_type;

  class Iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::input_iterator_tag;

    explicit Iterator(std::shared_ptr<F> next) : next_(std::move(next)), batch_((*next_)()) {}
    Iterator(Iterator&&) noexcept = default;
    Iterator& operator=(Iterator&&) noexcept = default;

    Batch& operator*() const { return *batch_; }
    Iterator& operator++() {
      batch_ = (*next_)();
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& at, std::default_sentinel_t) { return !at.batch_; }

   private:
    std::shared_ptr<F> next_;
    mutable std::optional<Batch> batch_;
  };

  explicit PullRange(F next) : next_(std::make_shared<F>(std::move(next))) {}
  [[nodiscard]] Iterator begin() const { return Iterator(next_); }
  [[nodiscard]] std::default_sentinel_t end() const { return {}; }

 private:
  std::shared_ptr<F> next_;
};

/// Makes a loader of a function: `accelerator.prepare_loader(accel::pull([&] { return queue.take(); }), ...)`.
/// @param next  callable without arguments, returns a `std::optional<Batch>`; nothing ends the pass.
template <class F>
[[nodiscard]] PullRange<std::decay_t<F>> pull(F&& next) {
  return PullRange<std::decay_t<F>>(std::forward<F>(next));
}

}  // namespace accel
