#include "comm/check.hpp"
#include "comm/group_impl.hpp"

#include <accel/error.hpp>
#include <accel/source_location.hpp>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstring>

namespace accel::detail {
namespace {

constexpr std::int64_t kMostDimensions = 14;
constexpr std::int64_t kHeaderSlots = kMostDimensions + 2;
constexpr std::int64_t kNotSendable = -1;

// Before tensors of unknown shapes travel, every rank learns what the others hold: {dtype, dimensions, shape...}. A
// rank whose tensor cannot be sent says so with dtype kNotSendable, so that all ranks throw together and none waits.
struct Header {
  std::array<std::int64_t, kHeaderSlots> slots{};

  [[nodiscard]] std::int64_t dtype() const { return slots[0]; }
  [[nodiscard]] std::vector<std::int64_t> shape() const { return {slots.begin() + 2, slots.begin() + 2 + slots[1]}; }
  [[nodiscard]] std::int64_t rows() const { return slots[1] == 0 ? 1 : slots[2]; }

  [[nodiscard]] bool fits(const Header& other) const {
    return dtype() == other.dtype() && slots[1] == other.slots[1] &&
           std::equal(slots.begin() + 3, slots.end(), other.slots.begin() + 3);
  }
};

Header header_of(const at::Tensor& tensor, const std::string& defect) {
  Header header;
  if (!defect.empty()) {
    header.slots[0] = kNotSendable;
    return header;
  }
  header.slots[0] = static_cast<std::int64_t>(tensor.scalar_type());
  header.slots[1] = tensor.dim();
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), header.slots.begin() + 2);
  return header;
}

std::vector<Header> exchange(const Header& mine, const Group& group, const SourceLocation& where) {
  const c10::Device device = control_device(group);
  at::Tensor input = at::tensor(c10::IntArrayRef(mine.slots), at::kLong).to(device);
  at::Tensor output = at::empty({group.size(), kHeaderSlots}, input.options());
  all_gather_into(output, input, Purpose::kControl, group, where);
  output = output.cpu();
  std::vector<Header> headers(static_cast<std::size_t>(group.size()));
  for (std::size_t rank = 0; rank < headers.size(); ++rank)
    std::memcpy(headers[rank].slots.data(), output.const_data_ptr<std::int64_t>() + rank * kHeaderSlots,
                sizeof(Header::slots));
  return headers;
}

std::string words(const Header& header) {
  if (header.dtype() == kNotSendable) return "a tensor that cannot be sent";
  return cat(c10::toString(static_cast<c10::ScalarType>(header.dtype())), " ", c10::IntArrayRef(header.shape()));
}

// All ranks see the same headers, so all throw or none does.
void check_headers(const CallSite& site, const std::vector<Header>& headers, const std::string& defect) {
  if (!defect.empty()) usage_error(site, defect);
  for (std::size_t rank = 0; rank < headers.size(); ++rank) {
    if (headers[rank].dtype() == kNotSendable)
      usage_error(site, cat("expected tensors on all ranks, found that rank ", rank,
                            " gave one that cannot be sent; the error of that rank says why"));
    if (!headers[rank].fits(headers[0]))
      usage_error(site,
                  cat("expected one dtype and equal shapes but for dimension 0 on all ranks, found ", words(headers[0]),
                      " on rank 0 and ", words(headers[rank]), " on rank ", rank, "; convert or pad them"));
  }
}

// The tensors lie behind one another in one buffer, of which each result is a view.
std::vector<at::Tensor> gather_rows(const at::Tensor& tensor, const std::vector<Header>& headers, Purpose purpose,
                                    const Group& group, const SourceLocation& where) {
  const CallSite site{"all_gather", group, where};
  Channel* channel = group.impl().channel(tensor.device().type());
  if (channel == nullptr)
    usage_error(site, cat("expected a tensor on a device that this group serves, found ", tensor.device()));
  std::vector<std::int64_t> rows;
  std::int64_t all_rows = 0;
  for (const Header& header : headers) all_rows += rows.emplace_back(header.rows());

  std::vector<std::int64_t> shape = tensor.sizes().vec();
  const bool scalar = shape.empty();
  if (scalar) shape.push_back(1);
  shape[0] = all_rows;
  const at::Tensor buffer = at::empty(shape, tensor.options().requires_grad(false));
  channel->all_gather_rows(numbers_of(buffer), numbers_of(tensor.detach()), rows, {purpose, false, where});

  std::vector<at::Tensor> tensors;
  std::int64_t first = 0;
  for (const std::int64_t count : rows) {
    tensors.push_back(scalar ? buffer.select(0, first) : buffer.narrow(0, first, count));
    first += count;
  }
  return tensors;
}

}  // namespace

std::vector<at::Tensor> all_gather(const at::Tensor& tensor, Purpose purpose, const Group& group,
                                   const SourceLocation& where) {
  const CallSite site{"all_gather", group, where};
  std::string defect = defect_of(tensor, "tensor");
  if (defect.empty() && tensor.dim() > kMostDimensions)
    defect = cat("expected at most ", kMostDimensions, " dimensions, found ", tensor.dim(), "; flatten some of them");
  if (group.size() == 1) {
    if (!defect.empty()) usage_error(site, defect);
    return {tensor.detach()};
  }
  const std::vector<Header> headers = exchange(header_of(tensor, defect), group, where);
  check_headers(site, headers, defect);
  return gather_rows(tensor, headers, purpose, group, where);
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
