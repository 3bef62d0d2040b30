#pragma once

#include <accel/collectives.hpp>
#include <accel/source_location.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace accel::detail {

/// What a rank says of one model before its gradients are reduced.
struct TargetHeader {
  std::uint64_t signature = 0;  ///< of its parameters and of how its window is divided; equal on all ranks
  std::int64_t held = 0;        ///< micro-batches this rank holds in the window
  std::int64_t means = 0;       ///< those of them whose loss is a mean, not a sum over items
  std::int64_t items = 0;       ///< items of the others
  std::int64_t scaled = 0;      ///< 1: this rank divided its losses by a number of its own
  std::int64_t unplaced = 0;    ///< 1: its buckets were laid out anew and want a place
};

/// The same, summed over ranks.
struct TargetTotals {
  std::int64_t held = 0;
  std::int64_t means = 0;
  std::int64_t items = 0;
  std::int64_t scaled = 0;
  std::int64_t unplaced = 0;

  [[nodiscard]] bool by_items() const { return held > means; }
  [[nodiscard]] bool empty() const { return held == 0 || (by_items() && items == 0); }
};

/// The small exchange before each round. Gathered rather than summed, so that a rank that disagrees can be named.
///
/// Collective. Nothing of a gradient was sent when it throws, and it throws on all ranks.
/// @param call      for error texts
/// @param describe  what this rank is about to reduce; asked for only if ranks disagree
/// @throws AbandonedError  a rank cannot take part.
/// @throws UsageError  ranks reduce different models, or models with different (trainable) parameters.
std::vector<TargetTotals> exchange_headers(const std::vector<TargetHeader>& targets, const Group& group,
                                           const char* call, const std::function<std::string()>& describe,
                                           const SourceLocation& where);

/// In place of exchange_headers, on a rank that cannot take part: tells the others why, who then throw AbandonedError.
///
/// Collective. @return how many ranks could not take part.
int announce_failure(const std::string& reason, const Group& group, const SourceLocation& where);

}  // namespace accel::detail
