#include "comm/group_impl.hpp"

namespace accel {
namespace detail {

void StatsTable::count(Operation operation, Purpose purpose, std::uint64_t bytes) noexcept {
  Cell& cell = table_[static_cast<std::size_t>(operation)][static_cast<std::size_t>(purpose)];
  cell.calls.fetch_add(1, std::memory_order_relaxed);
  cell.bytes.fetch_add(bytes, std::memory_order_relaxed);
}

CommStats StatsTable::snapshot() const {
  CommStats stats;
  for (std::size_t operation = 0; operation < CommStats::kOperations; ++operation)
    for (std::size_t purpose = 0; purpose < CommStats::kPurposes; ++purpose) {
      const Cell& cell = table_[operation][purpose];
      stats.table[operation][purpose] = {cell.calls.load(std::memory_order_relaxed),
                                         cell.bytes.load(std::memory_order_relaxed)};
    }
  return stats;
}

}  // namespace detail

OperationStats CommStats::of(Operation operation, Purpose purpose) const {
  return table[static_cast<std::size_t>(operation)][static_cast<std::size_t>(purpose)];
}

OperationStats CommStats::of(Purpose purpose) const {
  OperationStats sum;
  for (const auto& row : table) {
    sum.calls += row[static_cast<std::size_t>(purpose)].calls;
    sum.bytes += row[static_cast<std::size_t>(purpose)].bytes;
  }
  return sum;
}

CommStats CommStats::operator-(const CommStats& earlier) const {
  CommStats difference;
  for (std::size_t operation = 0; operation < kOperations; ++operation)
    for (std::size_t purpose = 0; purpose < kPurposes; ++purpose) {
      const OperationStats& now = table[operation][purpose];
      const OperationStats& then = earlier.table[operation][purpose];
      difference.table[operation][purpose] = {now.calls - then.calls, now.bytes - then.bytes};
    }
  return difference;
}

}  // namespace accel
