#include "comm/reduce_buffer.hpp"

#include "comm/group_impl.hpp"

#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>

namespace accel::detail {
namespace {

/// Any tensor, by the group's all_reduce.
class PlainBuffer final : public ReduceBuffer {
 public:
  using ReduceBuffer::ReduceBuffer;

  void start(const ReduceSpec& spec, const Group& group, const SourceLocation& where) override {
    at::Tensor tensor = flat();
    work_ = all_reduce_async(tensor, spec, group, where);
  }
  void wait() override { std::exchange(work_, Work()).wait(); }
  void run(const ReduceSpec& spec, const Group& group, const SourceLocation& where) override {
    at::Tensor tensor = flat();
    all_reduce(tensor, spec, group, where);
  }

 private:
  Work work_;
};

/// A buffer of complex numbers: reduced as that of their parts.
class ComplexBuffer final : public ReduceBuffer {
 public:
  explicit ComplexBuffer(std::shared_ptr<ReduceBuffer> parts)
      : ReduceBuffer(at::view_as_complex(parts->flat().view({-1, 2}))), parts_(std::move(parts)) {}

  void start(const ReduceSpec& spec, const Group& group, const SourceLocation& where) override {
    parts_->start(spec, group, where);
  }
  void wait() override { parts_->wait(); }
  void run(const ReduceSpec& spec, const Group& group, const SourceLocation& where) override {
    parts_->run(spec, group, where);
  }

 private:
  const std::shared_ptr<ReduceBuffer> parts_;
};

}  // namespace

std::vector<std::shared_ptr<ReduceBuffer>> GroupImpl::reduce_buffers(const std::vector<at::Tensor>& flats,
                                                                     const Group&) {
  std::vector<std::shared_ptr<ReduceBuffer>> buffers;
  for (const at::Tensor& flat : flats) buffers.push_back(std::make_shared<PlainBuffer>(flat));
  return buffers;
}

std::vector<std::shared_ptr<ReduceBuffer>> reduce_buffers(const std::vector<at::Tensor>& flats, const Group& group) {
  std::vector<at::Tensor> numbers;
  for (const at::Tensor& flat : flats) numbers.push_back(flat.is_complex() ? at::view_as_real(flat).view(-1) : flat);
  auto buffers = group.impl().reduce_buffers(numbers, group);
  for (std::size_t at = 0; at < flats.size(); ++at)
    if (flats[at].is_complex()) buffers[at] = std::make_shared<ComplexBuffer>(std::move(buffers[at]));
  return buffers;
}

}  // namespace accel::detail
