#include "comm/group_impl.hpp"

namespace accel {
namespace {

OperationStats& operator+=(OperationStats& sum, const OperationStats& each) {
  sum.calls += each.calls;
  sum.bytes += each.bytes;
  return sum;
}

template <class Table>
void subtract(Table& from, const Table& what) {
  for (std::size_t row = 0; row < from.size(); ++row)
    for (std::size_t column = 0; column < from[row].size(); ++column) {
      from[row][column].calls -= what[row][column].calls;
      from[row][column].bytes -= what[row][column].bytes;
    }
}

}  // namespace

namespace detail {

void StatsTable::Cell::add(std::uint64_t count) noexcept {
  calls.fetch_add(1, std::memory_order_relaxed);
  bytes.fetch_add(count, std::memory_order_relaxed);
}

void StatsTable::count(Operation operation, Purpose purpose, Transport transport, std::uint64_t bytes) noexcept {
  table_[static_cast<std::size_t>(operation)][static_cast<std::size_t>(purpose)].add(bytes);
  carry(transport, purpose, bytes);
}

void StatsTable::carry(Transport transport, Purpose purpose, std::uint64_t bytes) noexcept {
  carried_[static_cast<std::size_t>(transport)][static_cast<std::size_t>(purpose)].add(bytes);
}

CommStats StatsTable::snapshot() const {
  CommStats stats;
  const auto read = [](auto& to, const auto& from) {
    for (std::size_t row = 0; row < to.size(); ++row)
      for (std::size_t column = 0; column < to[row].size(); ++column)
        to[row][column] = {from[row][column].calls.load(std::memory_order_relaxed),
                           from[row][column].bytes.load(std::memory_order_relaxed)};
  };
  read(stats.table, table_);
  read(stats.carried, carried_);
  return stats;
}

}  // namespace detail

OperationStats CommStats::of(Operation operation, Purpose purpose) const {
  return table[static_cast<std::size_t>(operation)][static_cast<std::size_t>(purpose)];
}

OperationStats CommStats::of(Purpose purpose) const {
  OperationStats sum;
  for (const auto& row : table) sum += row[static_cast<std::size_t>(purpose)];
  return sum;
}

OperationStats CommStats::of(Transport transport, Purpose purpose) const {
  return carried[static_cast<std::size_t>(transport)][static_cast<std::size_t>(purpose)];
}

OperationStats CommStats::of(Transport transport) const {
  OperationStats sum;
  for (const OperationStats& each : carried[static_cast<std::size_t>(transport)]) sum += each;
  return sum;
}

CommStats CommStats::operator-(const CommStats& earlier) const {
  CommStats difference = *this;
  subtract(difference.table, earlier.table);
  subtract(difference.carried, earlier.carried);
  return difference;
}

}  // namespace accel
