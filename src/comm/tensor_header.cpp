#include "comm/tensor_header.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <bit>
#include <numeric>

namespace accel::detail {
namespace {

// As what a header travels.
constexpr std::size_t kSlots = sizeof(TensorHeader) / sizeof(std::int64_t);
using Slots = std::array<std::int64_t, kSlots>;

std::string words(const TensorHeader& header) {
  return cat(c10::toString(static_cast<c10::ScalarType>(header.dtype)), " ", header.shape());
}

}  // namespace

bool TensorHeader::fits(const TensorHeader& other) const {
  return dtype == other.dtype && dimensions == other.dimensions &&
         std::equal(sizes.begin() + 1, sizes.end(), other.sizes.begin() + 1);
}

std::string defect_for_header(const at::Tensor& tensor, const char* argument) {
  std::string defect = defect_of(tensor, argument);
  const auto most = static_cast<std::int64_t>(TensorHeader::kMostDimensions);
  if (defect.empty() && tensor.dim() > most)
    defect = cat("expected at most ", most, " dimensions, found ", tensor.dim(), "; flatten some of them");
  return defect;
}

TensorHeader header_of(const at::Tensor& tensor, const std::string& defect) {
  TensorHeader header;
  if (!defect.empty()) return header;
  header.dtype = static_cast<std::int32_t>(tensor.scalar_type());
  header.dimensions = tensor.dim();
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), header.sizes.begin());
  return header;
}

TensorHeaders exchange_headers(const TensorHeader& mine, const std::vector<std::int64_t>& numbers,
                               const CallSite& site) {
  const std::size_t slots = kSlots + numbers.size();
  at::Tensor input = at::empty({static_cast<std::int64_t>(slots)}, c10::TensorOptions(c10::kLong));
  auto* const given = input.mutable_data_ptr<std::int64_t>();
  const auto told = std::bit_cast<Slots>(mine);
  std::copy(told.begin(), told.end(), given);
  std::copy(numbers.begin(), numbers.end(), given + kSlots);
  input = input.to(control_device(site.group));
  at::Tensor output = at::empty({site.group.size(), static_cast<std::int64_t>(slots)}, input.options());
  all_gather_into(output, input, Purpose::kControl, site.group, site.where);
  output = output.cpu();
  TensorHeaders all;
  const auto* row = output.const_data_ptr<std::int64_t>();
  for (int rank = 0; rank < site.group.size(); ++rank, row += slots) {
    Slots header{};
    std::copy(row, row + kSlots, header.begin());
    all.of.push_back(std::bit_cast<TensorHeader>(header));
    all.numbers.emplace_back(row + kSlots, row + slots);
  }
  return all;
}

// All ranks see the same headers, so all throw or none does.
void check_headers(const CallSite& site, const TensorHeaders& headers, const std::string& defect) {
  if (!defect.empty()) usage_error(site, defect);
  const TensorHeader& first = headers.of[0];
  for (std::size_t rank = 0; rank < headers.of.size(); ++rank) {
    const TensorHeader& header = headers.of[rank];
    if (header.dtype == TensorHeader::kNotSendable)
      usage_error(site, cat("expected tensors on all ranks, found that rank ", rank,
                            " gave one that cannot be sent; the error of that rank says why"));
    if (!header.fits(first))
      usage_error(site,
                  cat("expected one dtype and equal shapes but for dimension 0 on all ranks, found ", words(first),
                      " on rank 0 and ", words(header), " on rank ", rank, "; convert or pad them"));
    if (header.root != first.root)
      usage_error(site, cat("expected the same `root` on all ranks, found ", first.root, " on rank 0 and ", header.root,
                            " on rank ", rank, "; compute it from what all ranks know"));
  }
}

std::vector<at::Tensor> rows_of(const at::Tensor& buffer, const std::vector<std::int64_t>& rows, bool scalars) {
  std::vector<at::Tensor> tensors;
  std::int64_t first = 0;
  for (const std::int64_t count : rows) {
    tensors.push_back(scalars ? buffer.select(0, first) : buffer.narrow(0, first, count));
    first += count;
  }
  return tensors;
}

at::Tensor buffer_for(const at::Tensor& tensor, const std::vector<std::int64_t>& rows) {
  std::vector<std::int64_t> shape = tensor.sizes().vec();
  if (shape.empty()) shape.push_back(1);
  shape[0] = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  return at::empty(shape, tensor.options().requires_grad(false));
}

std::int64_t numbers_per_row(const at::Tensor& tensor) {
  std::int64_t numbers = tensor.is_complex() ? 2 : 1;
  for (std::int64_t dim = 1; dim < tensor.dim(); ++dim) numbers *= tensor.size(dim);
  return numbers;
}

}  // namespace accel::detail
