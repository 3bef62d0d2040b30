#include "comm/agreement.hpp"

#include "comm/ops.hpp"
#include "core/message.hpp"

#include <accel/error.hpp>

#include <ATen/ops/empty.h>

#include <cstdint>
#include <vector>

namespace accel::detail {
namespace {

[[noreturn]] void report(const Claim& claim, const Group& group, const char* call, const SourceLocation& where) {
  const auto problems = all_gather_text(claim.problem, Purpose::kControl, group, where);
  const auto descriptions = all_gather_text(claim.description, Purpose::kControl, group, where);
  for (std::size_t rank = 0; rank < problems.size(); ++rank)
    if (!problems[rank].empty())
      throw UsageError(message(site_of(group), call, cat("rank ", rank, ": ", problems[rank], place(where))));
  std::size_t other = 1;
  while (other + 1 < descriptions.size() && descriptions[other] == descriptions[0]) ++other;
  const auto [first, second] = first_difference(descriptions[0], descriptions[other]);
  throw UsageError(message(site_of(group), call,
                           cat("expected the same ", claim.thing, " on all ranks, found '", first, "' on rank 0 and '",
                               second, "' on rank ", other, "; ", claim.remedy, place(where))));
}

}  // namespace

void agree_on(const Claim& claim, const Group& group, const char* call, const SourceLocation& where) {
  if (group.size() == 1) {
    if (!claim.problem.empty()) throw UsageError(message(site_of(group), call, cat(claim.problem, place(where))));
    return;
  }
  const c10::Device device = control_device(group);
  at::Tensor mine = at::empty({2}, c10::TensorOptions(c10::kLong));
  mine.data_ptr<std::int64_t>()[0] = static_cast<std::int64_t>(stable_hash(claim.description));
  mine.data_ptr<std::int64_t>()[1] = claim.problem.empty() ? 0 : 1;
  at::Tensor all = at::empty({group.size(), 2}, c10::TensorOptions(c10::kLong).device(device));
  all_gather_into(all, mine.to(device), Purpose::kControl, group, where);
  all = all.to(c10::kCPU);
  const auto* rows = all.data_ptr<std::int64_t>();
  bool good = true;
  for (int rank = 0; rank < group.size(); ++rank) good = good && rows[2 * rank] == rows[0] && rows[2 * rank + 1] == 0;
  if (!good) report(claim, group, call, where);
}

}  // namespace accel::detail
