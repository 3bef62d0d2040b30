#include "comm/check.hpp"
#include "comm/group_impl.hpp"

#include <accel/error.hpp>

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <utility>

namespace accel::detail {
namespace {

// Results of a group of one are its inputs: nothing is sent, nothing is counted. Works on any device.
class LocalChannel final : public Channel {
 public:
  Pending all_reduce(const at::Tensor& tensor, const ReduceSpec& spec, const CallOptions&) override {
    scale(tensor, spec.factor);
    return nullptr;
  }
  Pending broadcast(const at::Tensor&, int, const CallOptions&) override { return nullptr; }
  Pending all_gather_into(const at::Tensor& output, const at::Tensor& input, const CallOptions&) override {
    copy(output, input);
    return nullptr;
  }
  Pending all_gather_rows(const at::Tensor& output, const at::Tensor& input, const std::vector<std::int64_t>&,
                          const CallOptions&) override {
    copy(output, input);
    return nullptr;
  }
  Pending reduce_scatter(const at::Tensor& output, const at::Tensor& input, const ReduceSpec& spec,
                         const CallOptions&) override {
    copy(output, input);
    scale(output, spec.factor);
    return nullptr;
  }
  Pending reduce(const at::Tensor& tensor, int, const ReduceSpec& spec, const CallOptions&) override {
    scale(tensor, spec.factor);
    return nullptr;
  }
  Pending gather(const at::Tensor& output, const at::Tensor& input, const std::vector<std::int64_t>&, int,
                 const CallOptions&) override {
    copy(output, input);
    return nullptr;
  }
  Pending scatter(const at::Tensor& output, const at::Tensor& input, int, const CallOptions&) override {
    copy(output, input);
    return nullptr;
  }
  Pending all_to_all(const at::Tensor& output, const at::Tensor& input, const Splits&, const CallOptions&) override {
    copy(output, input);
    return nullptr;
  }
  Pending barrier(const CallOptions&) override { return nullptr; }
  Pending send(const at::Tensor&, int, int, const CallOptions&) override { return no_peer("send"); }
  Pending recv(const at::Tensor&, int, int, const CallOptions&) override { return no_peer("recv"); }

 private:
  static void copy(const at::Tensor& to, const at::Tensor& from) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    to.copy_(from.reshape(to.sizes()));
  }
  static void scale(const at::Tensor& tensor, double factor) {
    if (factor == 1.0) return;
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    tensor.mul_(factor);
  }
  // The ranks are checked before a channel is asked, so a group of one never comes here.
  static Pending no_peer(const char* call) {
    throw InternalError(message({0, 1}, call, "expected another rank, found a group of one"));
  }
};

class LocalGroup final : public GroupImpl {
 public:
  using GroupImpl::GroupImpl;

  Channel* channel(c10::DeviceType) override { return &channel_; }
  c10::intrusive_ptr<c10d::Backend> find_backend(c10::DeviceType) override { return {}; }
  std::shared_ptr<GroupImpl> split(int, int) override { return duplicate(options_); }
  std::shared_ptr<GroupImpl> duplicate(const GroupOptions& options) override {
    return make_local_group(process_, options);
  }

 private:
  LocalChannel channel_;
};

}  // namespace

std::shared_ptr<GroupImpl> make_local_group(Process process, const GroupOptions& options) {
  process.rank = process.local_rank = process.host_index = 0;
  process.size = process.local_size = process.hosts = 1;
  return std::make_shared<LocalGroup>(std::move(process), options);
}

}  // namespace accel::detail
