#pragma once

#include <accel/export.hpp>
#include <accel/tree_fields.hpp>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace accel {

namespace detail {

ACCEL_API void place_tensor(at::Tensor& tensor, c10::Device device, bool non_blocking);

template <class T>
void place(T& tree, c10::Device device, bool non_blocking = false) {
  for_each_tensor(tree, [=](at::Tensor& tensor) { place_tensor(tensor, device, non_blocking); });
}

}  // namespace detail

/// `tree` (see tree.hpp: any nesting of tensors, numbers, texts, containers and structs with `accel_fields`) with all
/// its tensors on `device`; those that are there already are the same tensors, not copies.
/// @param non_blocking  copies from page-locked memory to a CUDA device are ordered in its current stream and not
/// waited
///                      for
template <class T>
[[nodiscard]] T to_device(T tree, c10::Device device, bool non_blocking = false) {
  detail::place(tree, device, non_blocking);
  return tree;
}

}  // namespace accel
