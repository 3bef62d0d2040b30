#pragma once

// How ranks see that trees are alike before these travel; programs do not name these.

#include <accel/collectives.hpp>
#include <accel/export.hpp>
#include <accel/loader_binding.hpp>
#include <accel/source_location.hpp>
#include <accel/tree_archive.hpp>
#include <accel/tree_fields.hpp>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace accel::detail {

/// Of what a call needs equal trees on all ranks.
struct Alike {
  bool shapes = false;  ///< of tensors, and their dtypes
  bool rows = false;    ///< the lengths of lists of rows
  bool values = false;  ///< lone numbers and texts
};

ACCEL_API std::string text_of_shape(const at::Tensor& tensor);

template <class T>
void describe(std::string& text, T& tree, Alike alike);

template <class T>
void describe_parts(std::string& text, T& tree, Alike alike) {
  text.append("(");
  if constexpr (kKindOf<T> == TreeKind::kMap)
    for_each_entry(tree, [&](const auto& key, auto& value) {
      if constexpr (kKindOf<std::remove_cvref_t<decltype(key)>> == TreeKind::kText)
        text.append(key);
      else
        text.append(pack(key));
      text.append(": ");
      describe(text, value, alike);
      text.append(", ");
    });
  else
    for_each_part(tree, [&](auto& part) {
      describe(text, part, alike);
      text.append(", ");
    });
  text.append(")");
}

/// What must be alike, in words.
template <class T>
void describe(std::string& text, T& tree, Alike alike) {
  constexpr TreeKind kKind = kKindOf<T>;
  if constexpr (kKind == TreeKind::kTensor) {
    text.append(!tree.defined() ? "undefined tensor" : alike.shapes ? text_of_shape(tree) : "tensor");
  } else if constexpr (kKind == TreeKind::kNumber) {
    if constexpr (std::is_arithmetic_v<T>)
      text.append(alike.values ? std::to_string(tree) : "number");
    else
      text.append(alike.values ? pack(tree) : "number");
  } else if constexpr (kKind == TreeKind::kText) {
    text.append(alike.values ? std::string_view(tree) : std::string_view("text"));
  } else if constexpr (is_list_of_rows<T>()) {
    if (!alike.rows) return void(text.append("rows"));
    text.append(std::to_string(tree.size())).append(" rows");
    describe_parts(text, tree, alike);
  } else if constexpr (kKind == TreeKind::kOptional) {
    text.append(tree ? "value" : "no value");
    if (tree) describe_parts(text, tree, alike);
  } else {
    describe_parts(text, tree, alike);
  }
}

/// Compares what ranks say of their trees. Collective.
/// @param problem  why this rank's tree cannot take part; empty if it can
/// @throws UsageError  on all ranks: trees differ, or a rank has a problem (names it).
ACCEL_API void agree_on_text(const std::string& description, const std::string& problem, const Group& group,
                             const char* call, const SourceLocation& where);

template <class T>
void agree_on_tree(T& tree, Alike alike, const std::string& problem, const Group& group, const char* call,
                   const SourceLocation& where) {
  if (group.size() == 1 && problem.empty()) return;
  std::string description;
  describe(description, tree, alike);
  agree_on_text(description, problem, group, call, where);
}

/// The tree as bytes. Where it has none, `problem` says why: other ranks wait to hear it.
template <class T>
std::string try_pack(const T& tree, std::string& problem) {
  try {
    return pack(tree);
  } catch (const std::exception& error) {
    problem = error.what();
    return {};
  }
}

/// Where the first tensor of the tree is: there those of the other ranks go.
template <class T>
c10::Device home_of(T& tree) {
  std::optional<c10::Device> device;
  for_each_tensor(tree, [&device](const at::Tensor& tensor) {
    if (!device && tensor.defined()) device = tensor.device();
  });
  return device.value_or(c10::DeviceType::CPU);
}

/// Says that a row of the tree would be cut off that is none: its tensors and lists must have `rows.given` rows each.
ACCEL_API std::string text_of_rows(std::int64_t found, std::int64_t expected);
template <class T>
std::string rows_problem(T& tree, const BatchRows& rows) {
  if constexpr (kKindOf<T> == TreeKind::kTensor) {
    if (!tree.defined()) return {};
    const std::int64_t found = tree.dim() == 0 ? -1 : tree.size(0);
    return found == rows.given ? std::string() : text_of_rows(found, rows.given);
  } else if constexpr (is_list_of_rows<T>()) {
    const auto found = static_cast<std::int64_t>(tree.size());
    return found == rows.given ? std::string() : text_of_rows(found, rows.given);
  } else {
    std::string problem;
    for_each_part(tree, [&](auto& part) {
      if (problem.empty()) problem = rows_problem(part, rows);
    });
    return problem;
  }
}

}  // namespace accel::detail
