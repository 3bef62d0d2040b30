#include "grad/window_header.hpp"

#include "comm/ops.hpp"
#include "core/message.hpp"

#include <accel/error.hpp>
#include <accel/source_location.hpp>

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>

namespace accel::detail {
namespace {

/// `mine` of all ranks, rank by rank.
std::vector<std::int64_t> gathered(const std::vector<std::int64_t>& mine, const Group& group,
                                   const SourceLocation& where) {
  const auto width = static_cast<std::int64_t>(mine.size());
  const c10::Device device = control_device(group);
  at::Tensor row = at::empty({width}, c10::TensorOptions(c10::kLong));
  std::copy(mine.begin(), mine.end(), row.data_ptr<std::int64_t>());
  at::Tensor all = at::empty({group.size(), width}, c10::TensorOptions(c10::kLong).device(device));
  all_gather_into(all, row.to(device), Purpose::kControl, group, where);
  all = all.to(c10::kCPU);
  const auto* data = all.data_ptr<std::int64_t>();
  return {data, data + all.numel()};
}

[[noreturn]] void report_failure(const Group& group, const char* call, const SourceLocation& where) {
  const auto texts = all_gather_text({}, Purpose::kControl, group, where);
  std::string failed;
  for (std::size_t rank = 0; rank < texts.size(); ++rank)
    if (!texts[rank].empty()) failed += cat(failed.empty() ? "" : "; ", "rank ", rank, ": ", texts[rank]);
  throw AbandonedError(message(site_of(group), call,
                               cat("expected every rank to begin its backward, found that one threw (", failed,
                                   "); the window was dropped on all ranks and the group is good: catch this on every "
                                   "rank and go on with the next window, or end the job")));
}

// Ranks that have run out have nothing to say.
[[noreturn]] void report_disagreement(const HeaderCall& call) {
  const auto texts = all_gather_text(call.describe(), Purpose::kControl, call.group, call.where);
  std::size_t one = 0;
  while (one + 1 < texts.size() && texts[one].empty()) ++one;
  std::size_t other = one;
  while (other + 1 < texts.size() && (texts[other].empty() || texts[other] == texts[one])) ++other;
  const auto [first, second] = first_difference(texts[one], texts[other]);
  throw UsageError(
      message(site_of(call.group), call.call,
              cat("expected all ranks to reduce the same models with the same trainable parameters, found '", first,
                  "' on rank ", one, " and '", second, "' on rank ", other,
                  "; freeze, thaw and replace parameters alike on all ranks, and name the models of a loss "
                  "with .inputs",
                  place(call.where))));
}

[[noreturn]] void report_guards(int with, int without, const HeaderCall& call) {
  throw UsageError(message(
      site_of(call.group), call.call,
      cat("expected all ranks under a join_uneven_inputs guard or none, found rank ", with, " under one and rank ",
          without, " not; open the guard on every rank, around the same loop", place(call.where))));
}

// Of a row of the first exchange.
constexpr std::size_t kSignature = 0, kStance = 1, kSyncing = 2, kClosing = 3, kNumbers = 4;
constexpr std::size_t kTargetNumbers = 5;
constexpr std::size_t kWidth = kNumbers + kTargetNumbers;

std::array<std::int64_t, kTargetNumbers> numbers_of(const TargetHeader& target) {
  return {target.held, target.means, target.items, target.scaled, target.unplaced};
}

void add(TargetTotals& total, const std::int64_t* numbers) {
  total.held += numbers[0];
  total.held_most = std::max(total.held_most, numbers[0]);
  total.means += numbers[1];
  total.items += numbers[2];
  total.scaled += numbers[3];
  total.unplaced += numbers[4];
}

}  // namespace

RoundOpening open_round(Stance stance, const RoundModels& models, const std::vector<TargetHeader>& targets,
                        const HeaderCall& call) {
  // A fixed width, so that ranks that disagree about the number of models still understand each other.
  std::uint64_t signature = targets.size();
  for (const TargetHeader& target : targets) signature = signature * 1099511628211ULL + target.signature;
  const auto first = numbers_of(targets.empty() ? TargetHeader() : targets.front());
  std::vector<std::int64_t> mine{static_cast<std::int64_t>(signature), static_cast<std::int64_t>(stance),
                                 static_cast<std::int64_t>(models.syncing), static_cast<std::int64_t>(models.closing)};
  mine.insert(mine.end(), first.begin(), first.end());
  RoundOpening opening{.rows = gathered(mine, call.group, call.where)};

  const auto row = [&opening](int rank) { return &opening.rows[static_cast<std::size_t>(rank) * kWidth]; };
  const auto stance_of = [&row](int rank) { return static_cast<Stance>(row(rank)[kStance]); };
  int active = -1, with_guard = -1, without = -1;
  bool differ = false;
  for (int rank = 0; rank < call.group.size(); ++rank) {
    if (stance_of(rank) == Stance::kFailed) report_failure(call.group, call.call, call.where);
    (stance_of(rank) == Stance::kPlain ? without : with_guard) = rank;
    if (stance_of(rank) == Stance::kJoined) {
      opening.some_joined = true;
    } else {
      if (active < 0) active = rank;
      differ = differ || row(rank)[kSignature] != row(active)[kSignature];
    }
  }
  if (with_guard >= 0 && without >= 0) report_guards(with_guard, without, call);
  if (differ) report_disagreement(call);
  opening.over = active < 0;
  if (opening.over) return opening;
  opening.first_active = active;
  opening.models = {static_cast<std::uint64_t>(row(active)[kSyncing]),
                    static_cast<std::uint64_t>(row(active)[kClosing])};
  return opening;
}

std::vector<TargetTotals> exchange_totals(const RoundOpening& opening, const std::vector<TargetHeader>& targets,
                                          const HeaderCall& call) {
  std::vector<TargetTotals> totals(targets.size());
  const auto ranks = static_cast<std::size_t>(call.group.size());
  if (targets.size() == 1 && !opening.some_joined) {
    for (std::size_t rank = 0; rank < ranks; ++rank) add(totals.front(), &opening.rows[rank * kWidth + kNumbers]);
    return totals;
  }
  std::vector<std::int64_t> mine;
  for (const TargetHeader& target : targets) {
    mine.push_back(static_cast<std::int64_t>(target.signature));
    for (const std::int64_t number : numbers_of(target)) mine.push_back(number);
  }
  const std::vector<std::int64_t> rows = gathered(mine, call.group, call.where);
  for (std::size_t rank = 0; rank < ranks; ++rank)
    for (std::size_t at = 0; at < targets.size(); ++at) {
      const std::size_t column = at * (1 + kTargetNumbers);
      const std::int64_t* const entry = &rows[rank * mine.size() + column];
      if (entry[0] != rows[column]) report_disagreement(call);
      add(totals[at], entry + 1);
    }
  return totals;
}

int announce_failure(const std::string& reason, const Group& group, const SourceLocation& where) {
  std::vector<std::int64_t> mine(kWidth, 0);  // as wide as a header, so that the others understand it
  mine[kStance] = static_cast<std::int64_t>(Stance::kFailed);
  gathered(mine, group, where);
  const auto texts = all_gather_text(reason, Purpose::kControl, group, where);
  return static_cast<int>(std::count_if(texts.begin(), texts.end(), [](const auto& text) { return !text.empty(); }));
}

}  // namespace accel::detail
