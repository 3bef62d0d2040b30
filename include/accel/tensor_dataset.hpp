#pragma once

#include <accel/export.hpp>
#include <accel/tree.hpp>
#include <accel/tree_fields.hpp>

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace accel {

namespace detail {

/// The rows of one batch, taken out of tensors.
class ACCEL_API RowSelection {
 public:
  /// @throws UsageError  an index is not below `rows`.
  RowSelection(c10::ArrayRef<std::size_t> indices, std::size_t rows);

  /// New memory always, so that what is done in place to a batch leaves the data as it is. Rows that lie one behind the
  /// other are copied as one block.
  [[nodiscard]] at::Tensor of(const at::Tensor& tensor) const;

  template <class List>
  [[nodiscard]] List of_list(const List& list) const {
    List picked;
    for (const std::size_t index : indices_) picked.insert(picked.end(), list[index]);
    return picked;
  }

 private:
  c10::ArrayRef<std::size_t> indices_;
  bool block_ = true;  // rows that lie one behind the other
  at::Tensor rows_;    // int64 indices; undefined for a block
};

/// Counts the rows of the parts of a data set, which must have equally many.
class ACCEL_API RowCount {
 public:
  /// @throws UsageError  undefined, without dimensions, or with another number of rows than the parts before.
  void add(const at::Tensor& tensor);
  void add_rows(std::size_t rows);
  /// @throws UsageError  no part was added.
  [[nodiscard]] std::size_t result() const;

 private:
  std::optional<std::size_t> rows_;
  std::size_t parts_ = 0;
};

/// f(part) for each tensor and each list with an entry for each row.
template <class T, class F>
void for_each_rowed(T& tree, F& f) {
  if constexpr (kKindOf<T> == TreeKind::kTensor || is_list_of_rows<T>())
    f(tree);
  else
    for_each_part(tree, [&f](auto& part) { for_each_rowed(part, f); });
}

template <class T>
inline constexpr bool kIsTensorTuple = false;
template <class... Parts>
inline constexpr bool kIsTensorTuple<std::tuple<Parts...>> = (std::is_same_v<Parts, at::Tensor> && ...);

}  // namespace detail

/// Tensors in memory as a data set with an index: sample i is row i of each. `Tree` is any tree of tensors (tree.hpp):
/// a tensor, a tuple, a map, a struct with accel_fields, `torch::data::Example`; lists with an entry for each row
/// (std::vector<std::string>) are rows too. A batch is a tree of the same type with the rows asked for.
///
/// `TensorDataset(x)` has batches that are tensors; `TensorDataset(x, y)` has tuples, as in `auto& [x, y] = batch`.
/// The tensors are not copied here and must not be changed while the data set is read. Copies share them, and all
/// functions may be called by several threads.
template <class Tree>
class TensorDataset {
 public:
  using BatchType = Tree;

  /// @throws UsageError  there is no tensor; one is undefined or has no dimensions; they differ in the size of
  ///                     dimension 0.
  explicit TensorDataset(Tree tensors) : data_(std::make_shared<Data>(std::move(tensors))) {}

  TensorDataset(at::Tensor first, at::Tensor second) requires detail::kIsTensorTuple<Tree>
      : TensorDataset(Tree(std::move(first), std::move(second))) {}
  TensorDataset(at::Tensor first, at::Tensor second, at::Tensor third) requires detail::kIsTensorTuple<Tree>
      : TensorDataset(Tree(std::move(first), std::move(second), std::move(third))) {}

  /// New tensors, on the device and of the dtype of the data; a row asked for twice is there twice.
  /// @throws UsageError  an index is not below size().
  [[nodiscard]] Tree get_batch(c10::ArrayRef<std::size_t> indices) const {
    const detail::RowSelection selection(indices, data_->rows);
    Tree batch = data_->empty;
    std::size_t at = 0;
    auto fill = [&](auto& part) {
      using Part = std::remove_cvref_t<decltype(part)>;
      const auto& source = *static_cast<const Part*>(data_->parts[at++]);
      if constexpr (std::is_same_v<Part, at::Tensor>)
        part = selection.of(source);
      else
        part = selection.of_list(source);
    };
    detail::for_each_rowed(batch, fill);
    return batch;
  }

  [[nodiscard]] std::size_t size() const { return data_->rows; }

  /// All rows.
  [[nodiscard]] const Tree& tensors() const { return data_->all; }

 private:
  struct Data {
    explicit Data(Tree tree) : all(std::move(tree)), empty(slice_tensors(all, 0, 0)) {
      detail::RowCount count;
      auto note = [&](auto& part) {
        using Part = std::remove_cvref_t<decltype(part)>;
        if constexpr (std::is_same_v<Part, at::Tensor>) {
          count.add(part);
          part = part.detach();  // a batch has no history, whatever its data were made of
        } else {
          count.add_rows(part.size());
        }
        parts.push_back(&part);
      };
      detail::for_each_rowed(all, note);
      rows = count.result();
    }
    Tree all;
    Tree empty;  // without rows: what a batch begins as, so that long lists are not copied to be thrown away
    std::vector<const void*> parts;  // of `all`, in the order of for_each_rowed
    std::size_t rows = 0;
  };
  std::shared_ptr<const Data> data_;
};

TensorDataset(at::Tensor, at::Tensor)->TensorDataset<std::tuple<at::Tensor, at::Tensor>>;
TensorDataset(at::Tensor, at::Tensor, at::Tensor)->TensorDataset<std::tuple<at::Tensor, at::Tensor, at::Tensor>>;

}  // namespace accel
