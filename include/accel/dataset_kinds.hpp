#pragma once

// Which kinds of data set make_data_loader takes; programs do not name these.

#include <accel/foreign_loader.hpp>
#include <accel/tree.hpp>

#include <c10/util/ArrayRef.h>

#include <concepts>
#include <cstddef>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace accel::detail {

template <class D>
concept HasSize = requires(D& dataset) {
  { dataset.size() } -> std::convertible_to<std::optional<std::size_t>>;
};

/// Batches by indices.
template <class D>
concept MapStyleDataset = HasSize<D> && requires(D& dataset, c10::ArrayRef<std::size_t> indices) {
  dataset.get_batch(indices);
};

/// Single samples by index.
template <class D>
concept IndexedDataset = !MapStyleDataset<D> && HasSize<D> && requires(D & dataset, std::size_t index) {
  dataset.get(index);
};

/// The next so many samples. An optional that is empty ends the epoch; `reset()`, if there is one, begins the next.
template <class D>
concept StreamDataset = !MapStyleDataset<D> && !IndexedDataset<D> && requires(D & dataset, std::size_t count) {
  dataset.get_batch(count);
};

/// A range of samples, which is gone through once for each epoch.
template <class D>
concept SampleRange = !MapStyleDataset<D> && !IndexedDataset<D> && !StreamDataset<D> && range_access::Direct<D>;

template <class D>
concept AnyDataset = MapStyleDataset<D> || IndexedDataset<D> || StreamDataset<D> || SampleRange<D>;

template <class T>
struct WithoutOptional {
  using type = T;
};
template <class T>
struct WithoutOptional<std::optional<T>> {
  using type = T;
};

/// What is read before it is collated, as a type and as whether it is a vector of single samples.
template <class D>
auto raw_example(D& dataset) {
  if constexpr (MapStyleDataset<D>)
    return std::type_identity<std::remove_cvref_t<decltype(dataset.get_batch(c10::ArrayRef<std::size_t>()))>>();
  else if constexpr (IndexedDataset<D>)
    return std::type_identity<std::vector<std::remove_cvref_t<decltype(dataset.get(std::size_t()))>>>();
  else if constexpr (StreamDataset<D>)
    return std::type_identity<
        typename WithoutOptional<std::remove_cvref_t<decltype(dataset.get_batch(std::size_t()))>>::type>();
  else
    return std::type_identity<std::vector<std::remove_cvref_t<decltype(*range_access::begin_of(dataset))>>>();
}
template <class D>
using RawOf = typename decltype(raw_example(std::declval<D&>()))::type;

/// Single samples are stacked to a batch of their own type; batches stay as they are.
template <class D>
struct DefaultCollate {
  auto operator()(RawOf<D>&& raw) const {
    if constexpr (IndexedDataset<D> || SampleRange<D>)
      return stack(raw);
    else
      return std::move(raw);
  }
};

}  // namespace accel::detail
