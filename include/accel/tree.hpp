#pragma once

#include <accel/export.hpp>
#include <accel/tree_fields.hpp>

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

/// Trees of tensors: what batches, samples and results are made of.
///
/// A tree is a tensor, a number, an enumerator, a std::string, an empty struct, `torch::data::Example`, or a pair,
/// tuple, array, optional, map or sequence of trees, to any depth. A struct of one's own takes part through one
/// function, found by argument-dependent lookup (so in the namespace of the struct, or its friend), that names all its
/// members in order; it goes before everything else that accel could make of the type:
/// @code
/// struct Replay { at::Tensor state, action; int horizon; };
/// auto accel_fields(Replay& replay) { return std::tie(replay.state, replay.action, replay.horizon); }
/// @endcode
/// `to_device`, `for_each_tensor`, `concatenate`, `stack`, `gather`, ... follow from it.
///
/// **Rows.** Of a batch, dimension 0 of each tensor counts rows. A sequence of tensors (std::vector<at::Tensor>) is a
/// list of fields, as an array, a tuple or a map is: each of its tensors has all rows. A sequence of anything else has
/// one entry for each row (std::vector<torch::data::Example<>>, std::vector<double>, std::vector<std::string>).
/// Everything here is local; tree_collectives.hpp has the collectives.
namespace accel {

namespace detail {

/// Of one field of several batches. @throws UsageError  they do not fit.
ACCEL_API at::Tensor concatenate_rows(const std::vector<const at::Tensor*>& tensors);
ACCEL_API at::Tensor stack_samples(const std::vector<const at::Tensor*>& tensors);

/// @throws UsageError  the `which`-th tree does not fit the first one in `what`.
[[noreturn]] ACCEL_API void trees_differ(const char* call, std::size_t which, const char* what);
[[noreturn]] ACCEL_API void no_trees(const char* call);
ACCEL_API void check_slice(std::int64_t begin, std::int64_t end);

/// How trees become one: concatenated, with further rows, or stacked, with a new dimension of rows.
struct Concatenation {
  static constexpr const char* kCall = "concatenate";
  static constexpr bool kAppends = true;
  static at::Tensor join(const std::vector<const at::Tensor*>& tensors) { return concatenate_rows(tensors); }
};
struct Stacking {
  static constexpr const char* kCall = "stack";
  static constexpr bool kAppends = false;
  static at::Tensor join(const std::vector<const at::Tensor*>& tensors) { return stack_samples(tensors); }
};

template <class T>
bool same_value(const T& a, const T& b) {
  if constexpr (std::is_floating_point_v<T>)
    if (a != a && b != b) return true;  // NaN, as in a field that has no value
  return a == b;
}

template <class How, class T>
void join_trees(T& result, const std::vector<T*>& parts);

template <class How, class T>
void join_optionals(T& result, const std::vector<T*>& parts) {
  std::vector<typename T::value_type*> values;
  for (std::size_t which = 0; which < parts.size(); ++which) {
    if (parts[which]->has_value() != result.has_value()) trees_differ(How::kCall, which, "whether a value is there");
    if (result) values.push_back(&**parts[which]);
  }
  if (result) join_trees<How>(*result, values);
}

template <class How, class T>
void join_maps(T& result, const std::vector<T*>& parts) {
  std::vector<const typename T::key_type*> keys;
  for_each_entry(result, [&keys](const auto& key, auto&) { keys.push_back(&key); });
  std::vector<std::vector<typename T::mapped_type*>> columns(keys.size());
  for (std::size_t which = 0; which < parts.size(); ++which) {
    if (parts[which]->size() != keys.size()) trees_differ(How::kCall, which, "the number of keys");
    std::size_t place = 0;
    for_each_entry(*parts[which], [&](const auto& key, auto& value) {
      if (key < *keys[place] || *keys[place] < key) trees_differ(How::kCall, which, "the keys of a map");
      columns[place++].push_back(&value);
    });
  }
  std::size_t place = 0;
  for_each_entry(result, [&](const auto&, auto& value) { join_trees<How>(value, columns[place++]); });
}

template <class How, class T>
void join_elements(T& result, const std::vector<T*>& parts) {
  std::vector<std::vector<typename T::value_type*>> columns(result.size());
  for (std::size_t which = 0; which < parts.size(); ++which) {
    if (parts[which]->size() != result.size()) trees_differ(How::kCall, which, "the length of a list of fields");
    std::size_t place = 0;
    for (auto& element : *parts[which]) columns[place++].push_back(&element);
  }
  std::size_t place = 0;
  for (auto& element : result) join_trees<How>(element, columns[place++]);
}

template <class How, std::size_t At, class Result, class Parts>
void join_fields(Result& result, Parts& parts) {
  if constexpr (At < std::tuple_size_v<Result>) {
    std::vector<std::remove_reference_t<std::tuple_element_t<At, Result>>*> column;
    for (auto& fields : parts) column.push_back(&std::get<At>(fields));
    join_trees<How>(std::get<At>(result), column);
    join_fields<How, At + 1>(result, parts);
  }
}

/// `result` is a copy of the first part.
template <class How, class T>
void join_trees(T& result, const std::vector<T*>& parts) {
  require_known<T>();
  constexpr TreeKind kKind = kKindOf<T>;
  if constexpr (kKind == TreeKind::kTensor) {
    result = How::join({parts.begin(), parts.end()});
  } else if constexpr (kKind == TreeKind::kNumber || kKind == TreeKind::kText) {
    for (std::size_t which = 1; which < parts.size(); ++which)
      if (!same_value(*parts[which], result)) trees_differ(How::kCall, which, "a number or text that is not a row");
  } else if constexpr (kKind == TreeKind::kOptional) {
    join_optionals<How>(result, parts);
  } else if constexpr (kKind == TreeKind::kMap) {
    join_maps<How>(result, parts);
  } else if constexpr (kKind == TreeKind::kFields) {
    auto fields = fields_of(result);
    std::vector<decltype(fields)> others;
    for (T* part : parts) others.push_back(fields_of(*part));
    join_fields<How, 0>(fields, others);
  } else if constexpr (How::kAppends && is_list_of_rows<T>()) {
    for (std::size_t which = 1; which < parts.size(); ++which)
      result.insert(result.end(), parts[which]->begin(), parts[which]->end());
  } else if constexpr (kKind != TreeKind::kEmpty) {
    join_elements<How>(result, parts);
  }
}

template <class How, class T>
T joined(const std::vector<T>& trees) {
  if (trees.empty()) no_trees(How::kCall);
  std::vector<T*> parts;
  for (const T& tree : trees) parts.push_back(const_cast<T*>(&tree));  // accel_fields takes no const; they are read
  T result = trees.front();
  join_trees<How>(result, parts);
  return result;
}

template <class T>
void slice_in_place(T& tree, std::int64_t begin, std::int64_t end) {
  if constexpr (kKindOf<T> == TreeKind::kTensor) {
    if (tree.defined() && tree.dim() > 0) tree = tree.slice(0, begin, end);
  } else if constexpr (is_list_of_rows<T>()) {
    const auto rows = static_cast<std::int64_t>(tree.size());
    tree.erase(std::next(tree.begin(), std::min(end, rows)), tree.end());
    tree.erase(tree.begin(), std::next(tree.begin(), std::min(begin, std::min(end, rows))));
  } else {
    for_each_part(tree, [begin, end](auto& part) { slice_in_place(part, begin, end); });
  }
}

template <class T>
std::optional<std::int64_t> rows_of(T& tree) {
  if constexpr (kKindOf<T> == TreeKind::kTensor) {
    return tree.defined() && tree.dim() > 0 ? std::optional(tree.size(0)) : std::nullopt;
  } else if constexpr (is_list_of_rows<T>()) {
    return static_cast<std::int64_t>(tree.size());
  } else {
    std::optional<std::int64_t> rows;
    for_each_part(tree, [&rows](auto& part) {
      if (!rows) rows = rows_of(part);
    });
    return rows;
  }
}

}  // namespace detail

/// The number of rows of a batch, as its first part that has rows counts them: the size of dimension 0 of a defined
/// tensor that has dimensions, the length of a sequence of rows; nothing where there is none.
template <class T>
[[nodiscard]] std::optional<std::int64_t> find_batch_size(const T& tree) {
  return detail::rows_of(const_cast<T&>(tree));  // accel_fields takes no const
}

/// One batch with the rows of all `batches`, one behind the other. Tensors without dimensions count as one row; the
/// graph of tensors is kept. Numbers and texts that are not rows must be equal in all.
/// @throws UsageError  there is no batch; they differ in structure, dtype, device, trailing shapes, or such a number.
template <class T>
[[nodiscard]] T concatenate(const std::vector<T>& batches) {
  return detail::joined<detail::Concatenation>(batches);
}

/// Rows [begin, end) of a batch, as views; an `end` behind the last row means the last row. What has no rows (tensors
/// without dimensions, lone numbers and texts) stays as it is.
/// @throws UsageError  not 0 <= begin <= end.
template <class T>
[[nodiscard]] T slice_tensors(const T& tree, std::int64_t begin, std::int64_t end) {
  detail::check_slice(begin, end);
  T result = tree;
  detail::slice_in_place(result, begin, end);
  return result;
}

/// A batch of samples, of the samples' own type: each tensor gets a new dimension 0 that counts samples.
/// @throws UsageError  there is no sample; they differ in structure, shape, dtype or device.
template <class T>
[[nodiscard]] T stack(const std::vector<T>& samples) {
  static_assert(detail::kOnlyTensors<T>,
                "samples with numbers or texts cannot become a batch of their own type: give the loader a function "
                "that makes a batch of samples (collate), or keep numbers as tensors");
  return detail::joined<detail::Stacking>(samples);
}

}  // namespace accel
