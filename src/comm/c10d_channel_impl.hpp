#pragma once

#include "comm/c10d_work.hpp"
#include "comm/channel.hpp"
#include "comm/followed.hpp"
#include "comm/group_impl.hpp"
#include "device/libtorch_compat.hpp"

#include <accel/error.hpp>

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <array>
#include <atomic>
#include <functional>
#include <utility>

namespace accel::detail {

/// c10d_channel.hpp says what it is. Its operations are in c10d_channel.cpp, those to or from one rank and between
/// pairs in c10d_rooted.cpp: not every backend has these, and then they are composed from what all have.
class C10dChannel final : public Channel {
 public:
  C10dChannel(c10::intrusive_ptr<c10d::Backend> backend, Site site, std::shared_ptr<StatsTable> stats,
              std::chrono::milliseconds timeout);

  Pending all_reduce(const at::Tensor& tensor, const ReduceSpec& spec, const CallOptions& call) override;
  Pending broadcast(const at::Tensor& tensor, int root, const CallOptions& call) override;
  Pending all_gather_into(const at::Tensor& output, const at::Tensor& input, const CallOptions& call) override;
  Pending all_gather_rows(const at::Tensor& output, const at::Tensor& input, const std::vector<std::int64_t>& rows,
                          const CallOptions& call) override;
  Pending reduce_scatter(const at::Tensor& output, const at::Tensor& input, const ReduceSpec& spec,
                         const CallOptions& call) override;
  Pending reduce(const at::Tensor& tensor, int root, const ReduceSpec& spec, const CallOptions& call) override;
  Pending gather(const at::Tensor& output, const at::Tensor& input, const std::vector<std::int64_t>& counts, int root,
                 const CallOptions& call) override;
  Pending scatter(const at::Tensor& output, const at::Tensor& input, int root, const CallOptions& call) override;
  Pending all_to_all(const at::Tensor& output, const at::Tensor& input, const Splits& splits,
                     const CallOptions& call) override;
  Pending barrier(const CallOptions& call) override;
  Pending send(const at::Tensor& tensor, int to, int tag, const CallOptions& call) override;
  Pending recv(const at::Tensor& tensor, int from, int tag, const CallOptions& call) override;

 private:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  struct Reduce {
    c10d::ReduceOp op;
    double factor_left = 1.0;  // what the backend does not apply itself
  };

  // The backend does not have an operation: nothing has been sent.
  struct Lacking {};

  [[nodiscard]] Reduce reduce_of(const ReduceSpec& spec) const;
  [[nodiscard]] bool says_lacking(const std::exception& error) const;
  void count(Operation operation, std::int64_t bytes, const CallOptions& call) noexcept;

  Pending pad_and_exchange(const Block& to, const at::Tensor& input, const Splits& splits, const CallOptions& call);

  template <class Options>
  [[nodiscard]] Options with(const CallOptions& call) const {
    Options options;
    options.timeout = timeout_;
    set_async(options, call.async);
    return options;
  }

  // A backend may use the block until it is done, so the last step holds it in any case.
  static std::function<void()> finish(const Block& block, double factor);

  template <class Start>
  Pending run(const char* name, Operation operation, std::int64_t bytes, const CallOptions& call, Start start,
              std::function<void()> last) {
    count(operation, bytes, call);
    return begin(name, call, /*may_lack=*/false, start, std::move(last));
  }

  // As run, but where the backend lacks the operation, `compose` makes it from others.
  template <class Start, class Compose>
  Pending run_or(const char* name, Operation operation, std::int64_t bytes, const CallOptions& call, Start start,
                 std::function<void()> last, Compose compose) {
    count(operation, bytes, call);
    std::atomic<bool>& lacks = lacks_[static_cast<std::size_t>(operation)];
    if (lacks) return compose();
    try {
      return begin(name, call, /*may_lack=*/true, start, std::move(last));
    } catch (const Lacking&) {
      lacks = true;
    }
    return compose();
  }

  template <class Start>
  Pending begin(const char* name, const CallOptions& call, bool may_lack, Start start, std::function<void()> last) {
    Pending pending;
    try {
      // Null is what some backends give for a synchronous call that is complete.
      if (WorkPtr work = start()) pending = c10d_work(std::move(work), site_, name);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      if (may_lack && says_lacking(error)) throw Lacking();
      rethrow_as_comm_error(site_, name, error);
    }
    if (!call.async && pending) {
      pending->wait(std::chrono::milliseconds::zero());
      pending = nullptr;
    }
    return last ? followed_by(std::move(pending), std::move(last)) : pending;
  }

  const c10::intrusive_ptr<c10d::Backend> backend_;
  const Site site_;
  const std::shared_ptr<StatsTable> stats_;
  const std::chrono::milliseconds timeout_;
  bool scales_itself_ = false;
  bool keeps_inputs_ = false;  // its reduce leaves the tensors of other ranks than the root alone
  Transport transport_ = Transport::kOther;
  std::array<std::atomic<bool>, CommStats::kOperations> lacks_{};
};

}  // namespace accel::detail
