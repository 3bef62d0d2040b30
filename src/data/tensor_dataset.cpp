#include <accel/tensor_dataset.hpp>

#include "core/message.hpp"
#include "runtime/session.hpp"

#include <ATen/ops/empty.h>

#include <cstdint>

namespace accel::detail {
namespace {

// Under the name that users know.
constexpr const char* kCall = "TensorDataset";

}  // namespace

RowSelection::RowSelection(c10::ArrayRef<std::size_t> indices, std::size_t rows) : indices_(indices) {
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] >= rows)
      job_usage_error("get_batch", cat("expected indices below ", rows, ", the size of the data set, found ",
                                       indices[i], "; take them from 0 on"));
    block_ = block_ && indices[i] == indices[0] + i;
  }
  if (block_) return;
  rows_ = at::empty({static_cast<std::int64_t>(indices.size())}, at::kLong);
  auto* row = rows_.mutable_data_ptr<std::int64_t>();
  for (const std::size_t index : indices) *row++ = static_cast<std::int64_t>(index);
}

at::Tensor RowSelection::of(const at::Tensor& tensor) const {
  if (!block_) return tensor.index_select(0, tensor.is_cpu() ? rows_ : rows_.to(tensor.device()));
  const std::int64_t first = indices_.empty() ? 0 : static_cast<std::int64_t>(indices_[0]);
  return tensor.narrow(0, first, static_cast<std::int64_t>(indices_.size())).clone(at::MemoryFormat::Contiguous);
}

void RowCount::add(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.dim() == 0)
    job_usage_error(kCall, cat("expected tensors whose dimension 0 counts samples, found ",
                               tensor.defined() ? "one without dimensions" : "an undefined one", " as part ", parts_,
                               "; give one with a row for each sample"));
  add_rows(static_cast<std::size_t>(tensor.size(0)));
}

void RowCount::add_rows(std::size_t rows) {
  if (rows_ && *rows_ != rows)
    job_usage_error(kCall, cat("expected parts of one number of rows, found ", *rows_, " in part 0 and ", rows,
                               " in part ", parts_, "; give each sample one row of each"));
  rows_ = rows;
  ++parts_;
}

std::size_t RowCount::result() const {
  if (!rows_) job_usage_error(kCall, "expected at least one tensor, found none; the data set would have no size");
  return *rows_;
}

}  // namespace accel::detail
