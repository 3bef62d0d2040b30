#include "comm/reduce_buffer.hpp"

#include "comm/group_impl.hpp"

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

}  // namespace

std::vector<std::shared_ptr<ReduceBuffer>> GroupImpl::reduce_buffers(const std::vector<at::Tensor>& flats,
                                                                     const Group&) {
  std::vector<std::shared_ptr<ReduceBuffer>> buffers;
  for (const at::Tensor& flat : flats) buffers.push_back(std::make_shared<PlainBuffer>(flat));
  return buffers;
}

std::vector<std::shared_ptr<ReduceBuffer>> reduce_buffers(const std::vector<at::Tensor>& flats, const Group& group) {
  return group.impl().reduce_buffers(flats, group);
}

}  // namespace accel::detail
