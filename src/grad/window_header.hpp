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

/// The same of all ranks.
struct TargetTotals {
  std::int64_t held = 0;
  std::int64_t means = 0;
  std::int64_t items = 0;
  std::int64_t scaled = 0;
  std::int64_t unplaced = 0;
  std::int64_t held_most = 0;  ///< the largest of a rank; the others are sums

  [[nodiscard]] bool by_items() const { return held > means; }
  [[nodiscard]] bool empty() const { return held == 0 || (by_items() && items == 0); }
};

/// How a rank comes to a round.
enum class Stance : std::int64_t {
  kPlain,    ///< with its models, outside a join guard
  kFailed,   ///< it cannot take part
  kJoining,  ///< with its models, under a join guard
  kJoined,   ///< under a join guard, with nothing: its data has run out
};

/// The models of a round, for those who have run out: a bit for each, by index.
struct RoundModels {
  std::uint64_t syncing = 0;
  std::uint64_t closing = 0;
};

/// What all ranks know after the first exchange of a round.
struct RoundOpening {
  bool over = false;               ///< all ranks have run out: there is no round
  bool some_joined = false;        ///< the exchange of totals is due
  int first_active = 0;            ///< the lowest rank that has not run out
  RoundModels models = {};         ///< of the ranks that have not
  std::vector<std::int64_t> rows;  ///< as they were exchanged
};

/// Who asks, for error texts.
struct HeaderCall {
  const Group& group;
  const char* call;
  std::function<std::string()> describe;  ///< what this rank is about to reduce; asked for only if ranks disagree
  const SourceLocation& where;
};

/// The small exchange before each round. Gathered rather than summed, so that a rank that disagrees can be named.
///
/// Collective. Nothing of a gradient was sent when it throws, and it throws on all ranks.
/// @param targets  empty for a rank that has run out, which learns from `models` what the others reduce
/// @throws AbandonedError  a rank cannot take part.
/// @throws UsageError  ranks reduce different models, or models with different (trainable) parameters; only some ranks
///                     are under a join guard.
RoundOpening open_round(Stance stance, const RoundModels& models, const std::vector<TargetHeader>& targets,
                        const HeaderCall& call);

/// What all ranks hold. Communicates where the first exchange could not tell it: with several models, or where ranks
/// have run out. Collective.
/// @param targets  those of this rank, also where it has run out
/// @throws UsageError  on all ranks: a rank that has run out has other (trainable) parameters.
std::vector<TargetTotals> exchange_totals(const RoundOpening& opening, const std::vector<TargetHeader>& targets,
                                          const HeaderCall& call);

/// In place of open_round, on a rank that cannot take part: tells the others why, who then throw AbandonedError.
///
/// Collective. @return how many ranks could not take part.
int announce_failure(const std::string& reason, const Group& group, const SourceLocation& where);

}  // namespace accel::detail
