#pragma once

#include <accel/collectives.hpp>
#include <accel/export.hpp>
#include <accel/source_location.hpp>
#include <accel/tree.hpp>
#include <accel/tree_agreement.hpp>
#include <accel/tree_archive.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

/// Collectives on trees (tree.hpp says what these are). `Accelerator` has them as methods, without `_tree`.
namespace accel {

/// For pad_across_processes.
struct PadOptions {
  std::int64_t dim = 0;    ///< from the end, if negative; tensors without that dimension stay as they are
  double pad_index = 0.0;  ///< what is filled in, in the tensor's own dtype
  bool pad_first = false;  ///< fill in before what is there
};

/// For split_between_processes.
struct SplitOptions {
  bool apply_padding = false;  ///< ranks that would get one less get the last element again
};

namespace detail {

ACCEL_API at::Tensor gather_rows(const at::Tensor& tensor, const Group& group, const SourceLocation& where);
ACCEL_API at::Tensor reduced(const at::Tensor& tensor, ReduceOp op, const Group& group, const SourceLocation& where);
ACCEL_API double reduced(double number, ReduceOp op, const Group& group, const SourceLocation& where);
ACCEL_API std::int64_t reduced(std::int64_t number, ReduceOp op, const Group& group, const SourceLocation& where);
ACCEL_API void broadcast_into(at::Tensor& tensor, int root, const Group& group, const SourceLocation& where);
/// @throws UsageError  on all ranks: one has a problem.
ACCEL_API std::vector<std::string> gather_bytes(const std::string& bytes, const std::string& problem,
                                                const Group& group, const char* call, const SourceLocation& where);
ACCEL_API std::string broadcast_bytes(const std::string& bytes, const std::string& problem, int root,
                                      const Group& group, const char* call, const SourceLocation& where);
ACCEL_API void check_root(int root, const Group& group, const char* call);
ACCEL_API std::string origin_of(std::size_t rank);
/// Pads each of them to the largest size that any rank has in the dimension.
ACCEL_API void pad_to_largest(const std::vector<at::Tensor*>& tensors, const PadOptions& options, const Group& group,
                              const SourceLocation& where);
ACCEL_API void pad_to_multiple(at::Tensor& tensor, std::int64_t num_processes, std::int64_t dim);

/// What one rank gets of a list.
struct Share {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t repeats = 0;  ///< of the last element of the list
};
ACCEL_API Share share_of(std::int64_t length, const SplitOptions& options, const Group& group);
ACCEL_API void take_share(at::Tensor& tensor, const Share& share);
ACCEL_API void check_same_length(std::int64_t length, std::int64_t& expected, const Group& group);

template <class T>
std::vector<T> gather_objects(const T& object, const char* call, const Group& group, const SourceLocation& where) {
  std::string problem;
  const std::string bytes = try_pack(object, problem);
  const c10::Device device = home_of(object);
  std::vector<T> objects;
  for (const std::string& each : gather_bytes(bytes, problem, group, call, where))
    objects.push_back(unpack<T>(each, device, origin_of(objects.size())));
  return objects;
}

template <class T>
void gather_parts(T& tree, const Group& group, const SourceLocation& where) {
  if constexpr (kKindOf<T> == TreeKind::kTensor) {
    if (tree.defined()) tree = gather_rows(tree, group, where);
  } else if constexpr (is_list_of_rows<T>()) {
    if (group.size() > 1) tree = concatenate(gather_objects(tree, "gather", group, where));
  } else {
    for_each_part(tree, [&](auto& part) { gather_parts(part, group, where); });
  }
}

template <class T>
void reduce_parts(T& tree, ReduceOp op, const Group& group, const SourceLocation& where) {
  if constexpr (kKindOf<T> == TreeKind::kTensor) {
    if (tree.defined()) tree = reduced(tree, op, group, where);
  } else if constexpr (std::is_floating_point_v<T>) {
    tree = static_cast<T>(reduced(static_cast<double>(tree), op, group, where));
  } else if constexpr (std::is_integral_v<T>) {
    tree = static_cast<T>(reduced(static_cast<std::int64_t>(tree), op, group, where));
  } else if constexpr (kKindOf<T> == TreeKind::kSequence) {
    for (auto&& element : tree) {
      typename T::value_type value = std::move(element);  // std::vector<bool> has no references
      reduce_parts(value, op, group, where);
      element = std::move(value);
    }
  } else if constexpr (kKindOf<T> == TreeKind::kArray) {
    for (auto& element : tree) reduce_parts(element, op, group, where);
  } else {
    for_each_part(tree, [&](auto& part) { reduce_parts(part, op, group, where); });
  }
}

template <class T>
void take_share_of(T& tree, std::int64_t& length, const SplitOptions& options, const Group& group) {
  constexpr TreeKind kKind = kKindOf<T>;
  if constexpr (kKind == TreeKind::kTensor) {
    if (!tree.defined() || tree.dim() == 0) return;
    check_same_length(tree.size(0), length, group);
    take_share(tree, share_of(tree.size(0), options, group));
  } else if constexpr (kKind == TreeKind::kSequence) {
    const auto size = static_cast<std::int64_t>(tree.size());
    check_same_length(size, length, group);
    const Share share = share_of(size, options, group);
    T part(std::next(tree.begin(), share.begin), std::next(tree.begin(), share.end));
    for (std::int64_t repeat = 0; repeat < share.repeats; ++repeat) part.insert(part.end(), *std::prev(tree.end()));
    tree = std::move(part);
  } else {
    for_each_part(tree, [&](auto& part) { take_share_of(part, length, options, group); });
  }
}

template <class T>
T gather_checked(T tree, const std::string& problem, const char* call, const Group& group,
                 const SourceLocation& where) {
  agree_on_tree(tree, {.values = true}, problem, group, call, where);
  gather_parts(tree, group, where);
  return tree;
}

}  // namespace detail

/// The rows of all ranks, in order of rank, on every rank. Ranks may have different numbers of rows: nothing is padded.
///
/// A tensor without dimensions counts as one row, so that a loss of each rank becomes [size]. Lists of rows
/// (std::vector of texts, numbers, structs) are joined; lone numbers and texts must be equal on all ranks. Without a
/// graph. Collective.
/// @throws UsageError  on all ranks: the trees, or dtypes or trailing shapes of tensors differ (names the ranks).
template <class T>
[[nodiscard]] T gather_tree(const T& tree, const Group& group = world(),
                            SourceLocation where = SourceLocation::current()) {
  return detail::gather_checked(tree, {}, "gather", group, where);
}

/// The object of each rank, in order of rank, on every rank: anything that is a tree. Sent as bytes; tensors come to
/// the device of this rank's own, or to the CPU. Collective.
/// @throws UsageError  on all ranks: one has a tensor that cannot travel (sparse, quantized).
template <class T>
[[nodiscard]] std::vector<T> gather_object(const T& object, const Group& group = world(),
                                           SourceLocation where = SourceLocation::current()) {
  return detail::gather_objects(object, "gather_object", group, where);
}

/// The tree with each tensor and number combined over ranks; the given tensors stay as they are. Numbers of lists too;
/// integers travel as int64, floating ones as float64. Enumerators and texts stay those of this rank. Collective.
/// @throws UsageError  on all ranks: trees, shapes or dtypes differ; kAvg of integers.
template <class T>
[[nodiscard]] T reduce_tree(const T& tree, ReduceOp op = ReduceOp::kSum, const Group& group = world(),
                            SourceLocation where = SourceLocation::current()) {
  T result = tree;
  detail::agree_on_tree(result, {.shapes = true, .rows = true}, {}, group, "reduce", where);
  detail::reduce_parts(result, op, group, where);
  return result;
}

/// The tree of rank `root` on every rank: tensors into new ones of equal shapes, everything else as bytes.
/// Collective. @throws UsageError  on all ranks: trees, shapes or dtypes differ; `root` is no rank.
template <class T>
[[nodiscard]] T broadcast_tree(const T& tree, int root = 0, const Group& group = world(),
                               SourceLocation where = SourceLocation::current());

/// The object of rank `root` on every rank, whatever the others give. Collective.
/// @throws UsageError  on all ranks: it cannot travel. `root` is no rank.
template <class T>
[[nodiscard]] T broadcast_object(const T& object, int root = 0, const Group& group = world(),
                                 SourceLocation where = SourceLocation::current()) {
  detail::check_root(root, group, "broadcast_object");
  if (group.size() == 1) return object;
  std::string problem;
  const std::string bytes = group.rank() == root ? detail::try_pack(object, problem) : std::string();
  return detail::unpack<T>(detail::broadcast_bytes(bytes, problem, root, group, "broadcast_object", where),
                           detail::home_of(object), detail::origin_of(static_cast<std::size_t>(root)));
}

namespace detail {

template <class T>
void broadcast_parts(T& tree, int root, const Group& group, const SourceLocation& where) {
  if constexpr (kKindOf<T> == TreeKind::kTensor) {
    if (tree.defined()) broadcast_into(tree, root, group, where);
  } else if constexpr (kIsLeaf<T> || is_list_of_rows<T>()) {
    tree = broadcast_object(tree, root, group, where);
  } else if constexpr (kKindOf<T> == TreeKind::kArray) {
    for (auto& element : tree) broadcast_parts(element, root, group, where);
  } else {
    for_each_part(tree, [&](auto& part) { broadcast_parts(part, root, group, where); });
  }
}

}  // namespace detail

template <class T>
T broadcast_tree(const T& tree, int root, const Group& group, SourceLocation where) {
  detail::check_root(root, group, "broadcast");
  T result = tree;
  detail::agree_on_tree(result, {.shapes = true}, {}, group, "broadcast", where);
  if (group.size() > 1) detail::broadcast_parts(result, root, group, where);
  return result;
}

/// The tree with each tensor filled up to the largest size that a rank has in one dimension, so that all ranks have
/// equal shapes, in its own dtype. The sizes of all tensors go round at once. Collective.
/// @throws UsageError  on all ranks: trees, or numbers of dimensions differ.
template <class T>
[[nodiscard]] T pad_across_processes(const T& tree, const PadOptions& options = {}, const Group& group = world(),
                                     SourceLocation where = SourceLocation::current()) {
  T result = tree;
  detail::agree_on_tree(result, {.rows = true}, {}, group, "pad_across_processes", where);
  std::vector<at::Tensor*> tensors;
  for_each_tensor(result, [&tensors](at::Tensor& tensor) { tensors.push_back(&tensor); });
  detail::pad_to_largest(tensors, options, group, where);
  return result;
}

/// The tree with each tensor filled up with zeros to the next multiple of `num_processes` in dimension `dim`; one that
/// is a multiple stays as it is. Local.
/// @throws UsageError  num_processes < 1.
template <class T>
[[nodiscard]] T pad_input_tensors(const T& tree, std::int64_t num_processes, std::int64_t dim = 0) {
  T result = tree;
  for_each_tensor(result, [&](at::Tensor& tensor) { detail::pad_to_multiple(tensor, num_processes, dim); });
  return result;
}

/// This rank's part of something that all ranks have: the elements of a sequence (also of tensors), the rows of a
/// tensor; of a map or struct the part of each value. With a rest, the first ranks get one more; ranks may get nothing.
/// Local.
/// @throws UsageError  the parts of a map or struct have different lengths.
template <class T>
[[nodiscard]] T split_between_processes(const T& tree, const SplitOptions& options = {}, const Group& group = world()) {
  T result = tree;
  std::int64_t length = -1;
  detail::take_share_of(result, length, options, group);
  return result;
}

}  // namespace accel
