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

[[noreturn]] void report_disagreement(const Group& group, const char* call, const std::string& mine,
                                      const SourceLocation& where) {
  const auto texts = all_gather_text(mine, Purpose::kControl, group, where);
  std::size_t other = 1;
  while (other + 1 < texts.size() && texts[other] == texts[0]) ++other;
  const auto [first, second] = first_difference(texts[0], texts[other]);
  throw UsageError(
      message(site_of(group), call,
              cat("expected all ranks to reduce the same models with the same trainable parameters, found '", first,
                  "' on rank 0 and '", second, "' on rank ", other,
                  "; freeze, thaw and replace parameters alike on all ranks, and name the models of a loss "
                  "with .inputs",
                  place(where))));
}

}  // namespace

std::vector<TargetTotals> exchange_headers(const std::vector<TargetHeader>& targets, const Group& group,
                                           const char* call, const std::function<std::string()>& describe,
                                           const SourceLocation& where) {
  // A fixed width, so that ranks that disagree about the number of models still understand each other.
  std::uint64_t signature = targets.size();
  for (const TargetHeader& target : targets) signature = signature * 1099511628211ULL + target.signature;
  const auto numbers_of = [](const TargetHeader& target) {
    return std::array{target.held, target.means, target.items, target.scaled, target.unplaced};
  };
  const auto first = numbers_of(targets.empty() ? TargetHeader() : targets.front());
  std::vector<std::int64_t> mine{static_cast<std::int64_t>(signature), 0};
  mine.insert(mine.end(), first.begin(), first.end());
  std::vector<std::int64_t> rows = gathered(mine, group, where);
  for (std::size_t row = 0; row < rows.size(); row += mine.size())
    if (rows[row + 1] != 0) report_failure(group, call, where);
  for (std::size_t row = mine.size(); row < rows.size(); row += mine.size())
    if (rows[row] != rows[0]) report_disagreement(group, call, describe(), where);

  std::size_t first_column = 2;
  if (targets.size() > 1) {
    mine.clear();
    for (const TargetHeader& target : targets)
      for (const std::int64_t number : numbers_of(target)) mine.push_back(number);
    rows = gathered(mine, group, where);
    first_column = 0;
  }
  std::vector<TargetTotals> totals(targets.size());
  for (std::size_t row = 0; row < rows.size(); row += mine.size()) {
    const std::int64_t* number = &rows[row + first_column];
    for (TargetTotals& total : totals) {
      total.held += *number++;
      total.means += *number++;
      total.items += *number++;
      total.scaled += *number++;
      total.unplaced += *number++;
    }
  }
  return totals;
}

int announce_failure(const std::string& reason, const Group& group, const SourceLocation& where) {
  gathered({0, 1, 0, 0, 0, 0, 0}, group, where);  // as wide as a header, so that the others understand it
  const auto texts = all_gather_text(reason, Purpose::kControl, group, where);
  return static_cast<int>(std::count_if(texts.begin(), texts.end(), [](const auto& text) { return !text.empty(); }));
}

}  // namespace accel::detail
