#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <complex>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

// LibTorch's batch type is recognised by name; a program that has one includes it itself.
namespace torch::data {
template <typename Data, typename Target>
struct Example;
}

namespace accel::detail {

/// What a type is as a part of a tree.
enum class TreeKind {
  kTensor,
  kNumber,    ///< or an enumerator
  kText,      ///< std::string
  kEmpty,     ///< a struct without members
  kFields,    ///< Example, pair, tuple, or a struct with accel_fields
  kArray,     ///< std::array: as many fields of one type
  kOptional,  ///< one part or none
  kMap,       ///< parts by key
  kSequence,
  kUnknown
};

template <class T>
concept HasFields = requires(T& tree) {
  accel_fields(tree);
};

template <class T>
concept TupleLike = requires {
  std::tuple_size<T>::value;
};

template <class T>
concept SequenceLike = requires(T& tree) {
  typename T::value_type;
  tree.begin();
  tree.end();
};

template <class T>
concept MapLike = SequenceLike<T> && requires {
  typename T::mapped_type;
};

template <class T>
inline constexpr bool kIsExample = false;
template <class Data, class Target>
inline constexpr bool kIsExample<torch::data::Example<Data, Target>> = true;

template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;

template <class T>
inline constexpr bool kIsComplex = false;
template <class T>
inline constexpr bool kIsComplex<std::complex<T>> = true;
template <class T>
inline constexpr bool kIsComplex<c10::complex<T>> = true;

template <class T>
inline constexpr bool kIsNumber = std::is_arithmetic_v<T> || std::is_enum_v<T> || kIsComplex<T> ||
                                  std::is_same_v<T, c10::Half> || std::is_same_v<T, c10::BFloat16>;

template <class T>
constexpr TreeKind tree_kind() {
  if constexpr (HasFields<T>) return TreeKind::kFields;
  if constexpr (std::is_same_v<T, at::Tensor>) return TreeKind::kTensor;
  if constexpr (kIsNumber<T>) return TreeKind::kNumber;
  if constexpr (std::is_same_v<T, std::string>) return TreeKind::kText;
  if constexpr (kIsExample<T>) return TreeKind::kFields;
  if constexpr (kIsOptional<T>) return TreeKind::kOptional;
  if constexpr (MapLike<T>) return TreeKind::kMap;
  if constexpr (TupleLike<T>) return SequenceLike<T> ? TreeKind::kArray : TreeKind::kFields;
  if constexpr (SequenceLike<T>) return TreeKind::kSequence;
  return std::is_empty_v<T> ? TreeKind::kEmpty : TreeKind::kUnknown;
}

template <class T>
inline constexpr TreeKind kKindOf = tree_kind<std::remove_const_t<T>>();

/// Has no parts.
template <class T>
inline constexpr bool kIsLeaf = kKindOf<T> < TreeKind::kFields;

/// A sequence of tensors is a list of fields; a sequence of anything else has an entry for each row of a batch.
template <class T>
constexpr bool is_list_of_rows() {
  if constexpr (kKindOf<T> == TreeKind::kSequence) return !std::is_same_v<typename T::value_type, at::Tensor>;
  return false;
}

template <class>
inline constexpr bool kAlwaysFalse = false;

template <class T>
constexpr void require_known() {
  static_assert(kKindOf<T> != TreeKind::kUnknown,
                "accel does not know how to take this type apart: give it a function accel_fields in its own "
                "namespace, or as a friend, that names its members in order, as in "
                "auto accel_fields(Replay& r) { return std::tie(r.state, r.action, r.horizon); }");
}

template <class Tuple>
inline constexpr bool kAreReferences = false;
template <class... Parts>
inline constexpr bool kAreReferences<std::tuple<Parts...>> =
    (... && (std::is_lvalue_reference_v<Parts> && !std::is_const_v<std::remove_reference_t<Parts>>));

/// References to the fields, as a tuple.
template <class T>
auto fields_of(T& tree) {
  if constexpr (HasFields<T>) {
    static_assert(kAreReferences<decltype(accel_fields(tree))>,
                  "accel_fields takes T& (not const) and returns std::tie(members...)");
    return accel_fields(tree);
  } else if constexpr (kIsExample<T>) {
    if constexpr (requires { tree.target; })
      return std::tie(tree.data, tree.target);
    else
      return std::tie(tree.data);
  } else {
    return std::apply([](auto&... parts) { return std::tie(parts...); }, tree);
  }
}

/// f(key, value) in order of keys, which is the same on every rank.
template <class T, class F>
void for_each_entry(T& map, F&& f) {
  if constexpr (requires { typename T::key_compare; }) {
    for (auto& entry : map) f(entry.first, entry.second);
  } else {
    static_assert(
        requires(const typename T::key_type& key) { key < key; },
        "the keys of a map in a tree need operator<, so that all ranks take them in one order");
    std::vector<typename T::value_type*> entries;
    for (auto& entry : map) entries.push_back(&entry);
    std::stable_sort(entries.begin(), entries.end(), [](auto* a, auto* b) { return a->first < b->first; });
    for (auto* entry : entries) f(entry->first, entry->second);
  }
}

/// f(part) for what a tree consists of directly, in order; leaves have no parts.
template <class T, class F>
void for_each_part(T& tree, F&& f) {
  require_known<T>();
  constexpr TreeKind kKind = kKindOf<T>;
  if constexpr (kKind == TreeKind::kFields) {
    std::apply([&f](auto&... parts) { (f(parts), ...); }, fields_of(tree));
  } else if constexpr (kKind == TreeKind::kOptional) {
    if (tree) f(*tree);
  } else if constexpr (kKind == TreeKind::kMap) {
    for_each_entry(tree, [&f](const auto&, auto& value) { f(value); });
  } else if constexpr (kKind == TreeKind::kArray || kKind == TreeKind::kSequence) {
    if constexpr (!kIsLeaf<typename T::value_type> || std::is_same_v<typename T::value_type, at::Tensor>)
      for (auto& element : tree) f(element);
  }
}

template <class T, class F>
void visit_tensors(T& tree, F& f) {
  if constexpr (kKindOf<T> == TreeKind::kTensor)
    f(tree);
  else
    for_each_part(tree, [&f](auto& part) { visit_tensors(part, f); });
}

/// The leaves that a type can have, as bits.
struct Leaves {
  static constexpr unsigned kTensors = 1;
  static constexpr unsigned kNumbers = 2;
  static constexpr unsigned kTexts = 4;
};

template <class Tuple>
struct FieldTypes;

/// `Above`: the types that are being looked at, for types that hold themselves.
template <class T, class... Above>
constexpr unsigned leaves_of() {
  constexpr TreeKind kKind = kKindOf<T>;
  require_known<T>();
  if constexpr ((std::is_same_v<T, Above> || ...))
    return 0;
  else if constexpr (kKind == TreeKind::kTensor)
    return Leaves::kTensors;
  else if constexpr (kKind == TreeKind::kNumber)
    return Leaves::kNumbers;
  else if constexpr (kKind == TreeKind::kText)
    return Leaves::kTexts;
  else if constexpr (kKind == TreeKind::kFields)
    return FieldTypes<decltype(fields_of(std::declval<T&>()))>::template leaves<T, Above...>();
  else if constexpr (kKind == TreeKind::kMap)
    return leaves_of<typename T::mapped_type, T, Above...>();
  else if constexpr (kKind != TreeKind::kEmpty)
    return leaves_of<typename T::value_type, T, Above...>();
  else
    return 0;
}

template <class... Parts>
struct FieldTypes<std::tuple<Parts...>> {
  template <class... Above>
  static constexpr unsigned leaves() {
    return (0U | ... | leaves_of<std::remove_cvref_t<Parts>, Above...>());
  }
};

/// All leaves are tensors.
template <class T>
inline constexpr bool kOnlyTensors = leaves_of<T>() == Leaves::kTensors || leaves_of<T>() == 0;

}  // namespace accel::detail

namespace accel {

/// f(tensor) for each tensor of `tree`, undefined ones too, in an order that is the same on every rank: that of the
/// members, of the elements, and of the keys (of a std::unordered_map too). Of a const tree they are const.
template <class T, class F>
void for_each_tensor(T& tree, F&& f) {
  if constexpr (std::is_const_v<T>) {
    auto read = [&f](const at::Tensor& tensor) { f(tensor); };
    detail::visit_tensors(const_cast<std::remove_const_t<T>&>(tree), read);  // accel_fields takes no const
  } else {
    detail::visit_tensors(tree, f);
  }
}

}  // namespace accel
