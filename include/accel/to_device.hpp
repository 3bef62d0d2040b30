#pragma once

#include <accel/export.hpp>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <concepts>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

// LibTorch's batch type is recognised by name; a program that has one includes it itself.
namespace torch::data {
template <typename Data, typename Target>
struct Example;
}

namespace accel {

namespace detail {

ACCEL_API void place_tensor(at::Tensor& tensor, c10::Device device);

template <class T>
concept PlacesItself = requires(const T& tree, c10::Device device) {
  { accel_to_device(tree, device) } -> std::convertible_to<T>;
};

template <class T>
concept TupleLike = requires {
  std::tuple_size<T>::value;
};

template <class T>
concept MapLike = requires(T& tree) {
  typename T::mapped_type;
  tree.begin();
  tree.end();
};

template <class T>
concept SequenceLike = requires(T& tree) {
  typename T::value_type;
  tree.begin();
  tree.end();
};

template <class T>
inline constexpr bool kIsExample = false;
template <class Data, class Target>
inline constexpr bool kIsExample<torch::data::Example<Data, Target>> = true;

template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;

/// Values that live nowhere: numbers, enumerators, texts, and sequences of them.
template <class T>
constexpr bool holds_no_tensor() {
  if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_empty_v<T>)
    return true;
  else if constexpr (MapLike<T>)
    return holds_no_tensor<typename T::mapped_type>();
  else if constexpr (SequenceLike<T>)
    return holds_no_tensor<typename T::value_type>();
  else
    return false;
}

template <class>
inline constexpr bool kUnknownTree = false;

template <class T>
void place(T& tree, c10::Device device) {
  if constexpr (PlacesItself<T>) {
    tree = accel_to_device(std::as_const(tree), device);
  } else if constexpr (std::is_same_v<T, at::Tensor>) {
    place_tensor(tree, device);
  } else if constexpr (holds_no_tensor<T>()) {
    return;
  } else if constexpr (kIsExample<T>) {
    place(tree.data, device);
    if constexpr (requires { tree.target; }) place(tree.target, device);
  } else if constexpr (kIsOptional<T>) {
    if (tree) place(*tree, device);
  } else if constexpr (MapLike<T>) {
    for (auto& entry : tree) place(entry.second, device);
  } else if constexpr (SequenceLike<T>) {
    for (auto& element : tree) place(element, device);
  } else if constexpr (TupleLike<T>) {
    std::apply([device](auto&... parts) { (place(parts, device), ...); }, tree);
  } else {
    static_assert(kUnknownTree<T>,
                  "accel::to_device does not know this type: give it a free function "
                  "T accel_to_device(const T&, c10::Device) in its own namespace, or as a friend");
  }
}

}  // namespace detail

/// `tree` with all its tensors on `device`; those that are there already are the same tensors, not copies.
///
/// A tree is a tensor, a number, enumerator, text or empty struct (all left as they are), `torch::data::Example`, or a
/// pair, tuple, array, optional, map or sequence of trees. Types of your own take part through one function, found by
/// argument-dependent lookup, which takes precedence over all of these:
/// @code
/// struct Replay { at::Tensor state, action; int horizon; };
/// Replay accel_to_device(const Replay& batch, c10::Device device) {
///   return {accel::to_device(batch.state, device), accel::to_device(batch.action, device), batch.horizon};
/// }
/// @endcode
template <class T>
[[nodiscard]] T to_device(T tree, c10::Device device) {
  detail::place(tree, device);
  return tree;
}

}  // namespace accel
