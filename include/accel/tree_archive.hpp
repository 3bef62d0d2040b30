#pragma once

#include <accel/export.hpp>
#include <accel/tree_fields.hpp>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

/// Trees as bytes, for transfers between ranks of one job (not a format for files). The bytes begin with the structure
/// of the type in words, so that ranks which disagree on it notice before anything is read.
namespace accel::detail {

/// Numbers as they lie in memory, each text and each list with its length before it, tensors with dtype and shape and
/// their numbers by way of the CPU; of a struct or optional one byte says that it is there, so that nothing is empty.
class ACCEL_API TreeWriter {
 public:
  explicit TreeWriter(std::string_view structure);

  /// @throws UsageError  a layout or dtype that cannot travel.
  void tensor(const at::Tensor& tensor);
  void count(std::size_t parts);
  void numbers(const void* data, std::size_t bytes);
  void flag(bool value);
  void text(std::string_view text);

  [[nodiscard]] std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Reads what a TreeWriter wrote; never behind the end. Each read throws a UsageError if the bytes hold no such thing.
class ACCEL_API TreeReader {
 public:
  /// @param origin  whose bytes these are, for texts of errors
  TreeReader(std::string_view bytes, std::string_view structure, c10::Device device, std::string_view origin);

  [[nodiscard]] at::Tensor tensor();
  [[nodiscard]] std::size_t count();
  void numbers(void* data, std::size_t bytes);
  [[nodiscard]] bool flag();
  [[nodiscard]] std::string text();
  void finish() const;

 private:
  [[noreturn]] void fail(std::string_view found) const;
  std::string_view next(std::uint64_t bytes);

  std::string_view bytes_;
  c10::Device device_;
  std::string origin_;
};

template <class T>
std::string number_name() {
  if constexpr (std::is_enum_v<T>) {
    return std::string("enum ").append(number_name<std::underlying_type_t<T>>());
  } else {
    std::string name = "float";
    if constexpr (std::is_same_v<T, bool>)
      name = "bool";
    else if constexpr (std::is_integral_v<T>)
      name = std::is_signed_v<T> ? "int" : "uint";
    else if constexpr (kIsComplex<T>)
      name = "complex";
    else if constexpr (std::is_same_v<T, c10::BFloat16>)
      name = "bfloat";
    return name.append(std::to_string(8 * sizeof(T)));
  }
}

template <class Tuple>
struct FieldNames;

/// The structure of a type in words, as in `(tensor, list<text>)`: equal where trees can be read as each other.
template <class T, class... Above>
std::string structure_of() {
  constexpr TreeKind kKind = kKindOf<T>;
  require_known<T>();
  if constexpr ((std::is_same_v<T, Above> || ...))
    return "itself";
  else if constexpr (kKind == TreeKind::kTensor)
    return "tensor";
  else if constexpr (kKind == TreeKind::kNumber)
    return number_name<T>();
  else if constexpr (kKind == TreeKind::kText)
    return "text";
  else if constexpr (kKind == TreeKind::kEmpty)
    return "empty";
  else if constexpr (kKind == TreeKind::kFields)
    return std::string("(").append(
        FieldNames<decltype(fields_of(std::declval<T&>()))>::template names<T, Above...>().append(")"));
  else if constexpr (kKind == TreeKind::kMap)
    return std::string("map<")
        .append(structure_of<typename T::key_type, T, Above...>())
        .append(", ")
        .append(structure_of<typename T::mapped_type, T, Above...>())
        .append(">");
  else {
    std::string name = kKind == TreeKind::kOptional ? "optional<" : "list<";
    if constexpr (kKind == TreeKind::kArray) name = std::to_string(std::tuple_size_v<T>).append("<");
    return name.append(structure_of<typename T::value_type, T, Above...>()).append(">");
  }
}

template <class... Parts>
struct FieldNames<std::tuple<Parts...>> {
  template <class... Above>
  static std::string names() {
    std::string all;
    ((all.append(all.empty() ? "" : ", ").append(structure_of<std::remove_cvref_t<Parts>, Above...>())), ...);
    return all;
  }
};

/// Elements that lie behind one another and are copied in one go.
template <class T>
inline constexpr bool kIsBlock = false;
template <class T, class Allocator>
inline constexpr bool kIsBlock<std::vector<T, Allocator>> = kIsNumber<T> && !std::is_same_v<T, bool>;

template <class T>
void write(TreeWriter& writer, T& tree) {
  constexpr TreeKind kKind = kKindOf<T>;
  if constexpr (kKind == TreeKind::kTensor) {
    writer.tensor(tree);
  } else if constexpr (kKind == TreeKind::kNumber) {
    writer.numbers(&tree, sizeof(T));
  } else if constexpr (kKind == TreeKind::kText) {
    writer.text(tree);
  } else if constexpr (kKind == TreeKind::kMap) {
    writer.count(tree.size());
    for_each_entry(tree, [&writer](auto& key, auto& value) {
      write(writer, const_cast<typename T::key_type&>(key));  // only read
      write(writer, value);
    });
  } else if constexpr (kKind == TreeKind::kArray || kKind == TreeKind::kSequence) {
    if constexpr (kKind == TreeKind::kSequence) writer.count(tree.size());
    if constexpr (kKind == TreeKind::kArray) writer.flag(true);
    if constexpr (kIsBlock<T>) {
      writer.numbers(tree.data(), tree.size() * sizeof(typename T::value_type));
    } else {
      for (const auto& element : tree) {
        if constexpr (kIsNumber<typename T::value_type>) {
          const typename T::value_type number = element;  // std::vector<bool> has no references
          writer.numbers(&number, sizeof(number));
        } else {
          write(writer, const_cast<typename T::value_type&>(element));  // only read
        }
      }
    }
  } else {
    if constexpr (kKind == TreeKind::kOptional)
      writer.flag(tree.has_value());
    else
      writer.flag(true);
    for_each_part(tree, [&writer](auto& part) { write(writer, part); });
  }
}

template <class T>
void read(TreeReader& reader, T& tree);

template <class T>
T read_new(TreeReader& reader) {
  static_assert(std::is_default_constructible_v<T>,
                "what other ranks give is read into a new object: its type needs a default constructor");
  T tree{};
  read(reader, tree);
  return tree;
}

template <class T>
void read_elements(TreeReader& reader, T& tree) {
  using Element = typename T::value_type;
  static_assert(
      requires(Element element) { tree.insert(tree.end(), std::move(element)); },
      "a sequence that other ranks give needs insert(position, element): give a std::vector");
  const std::size_t count = reader.count();
  if constexpr (kIsBlock<T>) {
    tree.resize(count);
    reader.numbers(tree.data(), count * sizeof(Element));
  } else {
    for (std::size_t done = 0; done < count; ++done) tree.insert(tree.end(), read_new<Element>(reader));
  }
}

template <class T>
void read(TreeReader& reader, T& tree) {
  constexpr TreeKind kKind = kKindOf<T>;
  if constexpr (kKind == TreeKind::kTensor) {
    tree = reader.tensor();
  } else if constexpr (std::is_same_v<T, bool>) {
    tree = reader.flag();
  } else if constexpr (kKind == TreeKind::kNumber) {
    reader.numbers(&tree, sizeof(T));
  } else if constexpr (kKind == TreeKind::kText) {
    tree = reader.text();
  } else if constexpr (kKind == TreeKind::kOptional) {
    if (reader.flag()) tree = read_new<typename T::value_type>(reader);
  } else if constexpr (kKind == TreeKind::kMap) {
    const std::size_t count = reader.count();
    for (std::size_t done = 0; done < count; ++done) {
      auto key = read_new<typename T::key_type>(reader);
      tree.insert(tree.end(), typename T::value_type(std::move(key), read_new<typename T::mapped_type>(reader)));
    }
  } else if constexpr (kKind == TreeKind::kSequence) {
    read_elements(reader, tree);
  } else if constexpr (kKind == TreeKind::kArray) {
    (void)reader.flag();
    for (auto& element : tree) read(reader, element);
  } else {
    (void)reader.flag();
    for_each_part(tree, [&reader](auto& part) { read(reader, part); });
  }
}

/// @throws UsageError  a tensor that cannot travel (sparse, quantized).
template <class T>
std::string pack(const T& tree) {
  TreeWriter writer(structure_of<T>());
  write(writer, const_cast<T&>(tree));  // accel_fields takes no const
  return writer.take();
}

/// The tree with its tensors on `device`, without a graph.
/// @throws UsageError  the bytes are not those of a T.
template <class T>
T unpack(std::string_view bytes, c10::Device device, std::string_view origin = "the bytes") {
  TreeReader reader(bytes, structure_of<T>(), device, origin);
  T tree = read_new<T>(reader);
  reader.finish();
  return tree;
}

}  // namespace accel::detail
