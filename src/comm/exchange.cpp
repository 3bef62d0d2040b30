#include "comm/check.hpp"
#include "comm/tensor_header.hpp"

#include <accel/source_location.hpp>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <c10/core/ScalarType.h>

#include <algorithm>

namespace accel::detail {
namespace {

// What keeps a rank from sending its list; empty if nothing does.
std::string defect_of_list(const std::vector<at::Tensor>& inputs, const Group& group) {
  if (inputs.size() != static_cast<std::size_t>(group.size()))
    return cat("expected one tensor for each of ", group.size(), " ranks in `inputs`, found ", inputs.size(),
               "; give an empty one for ranks that get nothing");
  for (const at::Tensor& input : inputs)
    if (std::string defect = defect_for_header(input, "inputs"); !defect.empty()) return defect;
  const at::Tensor& first = inputs.front();
  for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
    const at::Tensor& input = inputs[rank];
    if (!header_of(input, {}).fits(header_of(first, {})) || input.device() != first.device())
      return cat("expected `inputs` of one dtype, device and shape but for dimension 0, found ",
                 c10::toString(first.scalar_type()), " ", first.sizes(), " on ", first.device(), " for rank 0 and ",
                 c10::toString(input.scalar_type()), " ", input.sizes(), " on ", input.device(), " for rank ", rank,
                 "; convert or pad them");
  }
  return {};
}

std::vector<std::int64_t> rows_for_each(const std::vector<at::Tensor>& inputs, const std::string& defect,
                                        const Group& group) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(group.size()), 0);
  if (!defect.empty()) return rows;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) rows[rank] = header_of(inputs[rank], {}).rows();
  return rows;
}

// One block of what goes to rank 0, to rank 1, ...
at::Tensor block_of(const std::vector<at::Tensor>& inputs) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return inputs.front().dim() == 0 ? at::stack(inputs) : at::cat(inputs);
}

Splits splits_of(const std::vector<std::vector<std::int64_t>>& rows, int rank, std::int64_t per_row) {
  Splits splits{.longest = 0};
  const auto mine = static_cast<std::size_t>(rank);
  for (std::size_t other = 0; other < rows.size(); ++other) {
    splits.sent.push_back(rows[mine][other] * per_row);
    splits.received.push_back(rows[other][mine] * per_row);
    splits.longest = std::max(splits.longest, *std::max_element(rows[other].begin(), rows[other].end()) * per_row);
  }
  return splits;
}

}  // namespace

std::vector<at::Tensor> all_to_all(const std::vector<at::Tensor>& inputs, Purpose purpose, const Group& group,
                                   const SourceLocation& where) {
  const CallSite site{"all_to_all", group, where};
  const std::string defect = defect_of_list(inputs, group);
  if (group.size() == 1) {
    if (!defect.empty()) usage_error(site, defect);
    return {inputs.front().detach()};
  }
  const TensorHeader header = defect.empty() ? header_of(inputs.front(), defect) : TensorHeader();
  const TensorHeaders headers = exchange_headers(header, rows_for_each(inputs, defect, group), site);
  check_headers(site, headers, defect);
  std::vector<std::int64_t> received;
  for (const auto& rows : headers.numbers) received.push_back(rows[static_cast<std::size_t>(group.rank())]);
  const at::Tensor& like = inputs.front();
  const at::Tensor buffer = buffer_for(like, received);
  channel_for(site, like.device())
      .all_to_all(numbers_of(buffer), numbers_of(block_of(inputs)),
                  splits_of(headers.numbers, group.rank(), numbers_per_row(like)), {purpose, false, where});
  return rows_of(buffer, received, like.dim() == 0);
}

}  // namespace accel::detail
