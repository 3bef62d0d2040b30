#include "comm/check.hpp"
#include "comm/tensor_header.hpp"

#include <accel/source_location.hpp>

#include <ATen/ops/empty.h>

#include <cstring>

namespace accel::detail {
namespace {

std::vector<std::int64_t> rows_of_ranks(const TensorHeaders& headers) {
  std::vector<std::int64_t> rows;
  for (const TensorHeader& header : headers.of) rows.push_back(header.rows());
  return rows;
}

}  // namespace

// The tensors lie behind one another in one buffer, of which each result is a view.

std::vector<at::Tensor> all_gather(const at::Tensor& tensor, Purpose purpose, const Group& group,
                                   const SourceLocation& where) {
  const CallSite site{"all_gather", group, where};
  const std::string defect = defect_for_header(tensor, "tensor");
  if (group.size() == 1) {
    if (!defect.empty()) usage_error(site, defect);
    return {tensor.detach()};
  }
  const TensorHeaders headers = exchange_headers(header_of(tensor, defect), {}, site);
  check_headers(site, headers, defect);
  const std::vector<std::int64_t> rows = rows_of_ranks(headers);
  const at::Tensor buffer = buffer_for(tensor, rows);
  channel_for(site, tensor.device())
      .all_gather_rows(numbers_of(buffer), numbers_of(tensor.detach()), rows, {purpose, false, where});
  return rows_of(buffer, rows, tensor.dim() == 0);
}

std::vector<at::Tensor> gather(const at::Tensor& tensor, int root, Purpose purpose, const Group& group,
                               const SourceLocation& where) {
  const CallSite site{"gather", group, where};
  std::string defect = defect_for_header(tensor, "tensor");
  if (defect.empty()) defect = defect_of_rank(group, root, "root");
  if (group.size() == 1) {
    if (!defect.empty()) usage_error(site, defect);
    return {tensor.detach()};
  }
  TensorHeader header = header_of(tensor, defect);
  header.root = root;
  const TensorHeaders headers = exchange_headers(header, {}, site);
  check_headers(site, headers, defect);
  const std::vector<std::int64_t> rows = rows_of_ranks(headers);
  const bool takes = group.rank() == root;
  const at::Tensor buffer = takes ? buffer_for(tensor, rows) : at::Tensor();
  std::vector<std::int64_t> counts;
  for (const std::int64_t count : rows) counts.push_back(count * numbers_per_row(tensor));
  channel_for(site, tensor.device())
      .gather(takes ? numbers_of(buffer) : at::Tensor(), numbers_of(tensor.detach()), counts, root,
              {purpose, false, where});
  if (!takes) return {};
  return rows_of(buffer, rows, tensor.dim() == 0);
}

std::vector<std::string> all_gather_text(const std::string& text, Purpose purpose, const Group& group,
                                         const SourceLocation& where) {
  if (group.size() == 1) return {text};
  at::Tensor bytes = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
  if (!text.empty()) std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  std::vector<std::string> texts;
  for (const at::Tensor& part : all_gather(bytes.to(control_device(group)), purpose, group, where)) {
    const at::Tensor host = part.cpu();
    texts.emplace_back(static_cast<const char*>(host.const_data_ptr()), static_cast<std::size_t>(host.numel()));
  }
  return texts;
}

}  // namespace accel::detail
