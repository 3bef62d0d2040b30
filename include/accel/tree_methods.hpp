#pragma once

#include <accel/collectives.hpp>
#include <accel/export.hpp>
#include <accel/loader_binding.hpp>
#include <accel/source_location.hpp>
#include <accel/tree_collectives.hpp>

#include <concepts>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace accel::detail {

class AcceleratorImpl;

/// The collectives on trees as methods of an Accelerator, over its group. tree_collectives.hpp says more of each, and
/// of what a tree is. None may be called in a loop under a join_uneven_inputs guard, where ranks make different numbers
/// of calls: that is a UsageError.
class ACCEL_API TreeMethods {
 public:
  /// The rows of all ranks, in order of rank, on every rank; ranks may have different numbers of rows. Collective.
  /// @throws UsageError  on all ranks: trees, dtypes or trailing shapes differ (names the ranks).
  template <class T>
  [[nodiscard]] T gather(const T& tree, SourceLocation where = SourceLocation::current()) const {
    return gather_tree(tree, user_group("gather"), where);
  }

  /// As gather, of results with one row for each sample of the batch at hand: rows that only repeat samples, so that
  /// ranks have equally many, are left out before anything is sent. Over a whole loop that gives each row of the data
  /// set once and in order. Outside a loop over a prepared loader of data it is gather. Collective.
  /// @throws UsageError  on all ranks: as gather; a tensor or list with another number of rows than the batch.
  template <class T>
  [[nodiscard]] T gather_for_metrics(const T& tree, SourceLocation where = SourceLocation::current()) const {
    const Group& group = user_group("gather_for_metrics");
    const std::optional<BatchRows> rows = rows_at_hand();
    T mine = tree;
    std::string problem;
    if (rows) problem = rows_problem(mine, *rows);
    if (rows && problem.empty() && rows->own < rows->given) slice_in_place(mine, 0, rows->own);
    return gather_checked(std::move(mine), problem, "gather_for_metrics", group, where);
  }

  /// The object of each rank, in order of rank, on every rank: anything that is a tree, sent as bytes. Collective.
  /// @throws UsageError  on all ranks: one cannot travel.
  template <class T>
  [[nodiscard]] std::vector<T> gather_object(const T& object, SourceLocation where = SourceLocation::current()) const {
    return accel::gather_object(object, user_group("gather_object"), where);
  }

  /// The tree with each tensor and number combined over ranks. Collective.
  /// @throws UsageError  on all ranks: trees, shapes or dtypes differ; kAvg of integers.
  template <class T>
  [[nodiscard]] T reduce(const T& tree, ReduceOp op = ReduceOp::kSum,
                         SourceLocation where = SourceLocation::current()) const {
    return reduce_tree(tree, op, user_group("reduce"), where);
  }

  /// The tree of rank `root` on every rank, of one structure on all. Collective.
  /// @throws UsageError  on all ranks: trees, shapes or dtypes differ; `root` is no rank.
  template <class T>
  [[nodiscard]] T broadcast(const T& tree, int root = 0, SourceLocation where = SourceLocation::current()) const {
    return broadcast_tree(tree, root, user_group("broadcast"), where);
  }

  /// The object of rank `root` on every rank, whatever the others give. Collective.
  /// @throws UsageError  on all ranks: it cannot travel; `root` is no rank.
  template <class T>
  [[nodiscard]] T broadcast_object(const T& object, int root = 0,
                                   SourceLocation where = SourceLocation::current()) const {
    return accel::broadcast_object(object, root, user_group("broadcast_object"), where);
  }

  /// The tree with each tensor filled up to the largest size of any rank in one dimension. Collective.
  /// @throws UsageError  on all ranks: trees, or numbers of dimensions differ.
  template <class T>
  [[nodiscard]] T pad_across_processes(const T& tree, const PadOptions& options = {},
                                       SourceLocation where = SourceLocation::current()) const {
    return accel::pad_across_processes(tree, options, user_group("pad_across_processes"), where);
  }

  /// This rank's part of something that all ranks have:
  /// `for (const auto& prompt : accelerator.split_between_processes(prompts)) ...`. Local.
  /// @throws UsageError  the parts of a map or struct have different lengths.
  template <class T>
  [[nodiscard]] T split_between_processes(const T& tree, const SplitOptions& options = {}) const {
    return accel::split_between_processes(tree, options, own_group());
  }

  /// Calls `function` with this rank's part, also where that is empty; returns what it returns. Local.
  template <class T, class Function>
  requires std::invocable<Function, T>
  auto split_between_processes(const T& tree, Function&& function, const SplitOptions& options = {}) const {
    return std::forward<Function>(function)(accel::split_between_processes(tree, options, own_group()));
  }

 protected:
  explicit TreeMethods(std::shared_ptr<AcceleratorImpl> impl);
  ~TreeMethods();
  TreeMethods(TreeMethods&&) noexcept;
  TreeMethods& operator=(TreeMethods&&) noexcept;

  /// @throws UsageError  it was moved from.
  [[nodiscard]] const std::shared_ptr<AcceleratorImpl>& shared() const;
  /// The group, for a collective of the program. @throws UsageError  inside a loop under a join guard.
  [[nodiscard]] const Group& user_group(const char* call) const;

 private:
  [[nodiscard]] const Group& own_group() const;
  /// Of the batch at hand. Says so once where ranks hold different numbers of batches.
  [[nodiscard]] std::optional<BatchRows> rows_at_hand() const;

  std::shared_ptr<AcceleratorImpl> impl_;
};

}  // namespace accel::detail
