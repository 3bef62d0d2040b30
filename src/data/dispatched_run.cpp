#include "data/loader_run.hpp"

#include "comm/ops.hpp"

#include <accel/error.hpp>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <exception>
#include <utility>

namespace accel::detail {
namespace {

// Apart from tags that programs use.
constexpr int kHeaderTag = 7311;
constexpr int kBatchTag = 7312;

enum Kind : std::int64_t { kBatch, kEmpty, kFailed };

/// What goes before a batch.
struct Header {
  std::int64_t pass = 0;
  std::int64_t kind = kBatch;
  std::int64_t bytes = 0;
  std::int64_t given = 0;
  std::int64_t own = 0;
  std::int64_t last = 0;
  std::int64_t position = 0;
};
constexpr std::int64_t kHeaderSlots = sizeof(Header) / sizeof(std::int64_t);

/// Messages on their way, with their memory. Dropping one that is under way is safe, but costs its memory for good.
class Outbox {
 public:
  explicit Outbox(const Group& group) : group_(group) {}
  ~Outbox() {
    for (Message& each : messages_) {
      try {
        (void)each.work.is_completed();
      } catch (const std::exception&) {  // its receiver is gone, which the next collective tells
      }
    }
  }
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  void post(int to, const Header& header, std::string bytes) {
    at::Tensor head = at::empty({kHeaderSlots}, at::kLong);
    std::memcpy(head.mutable_data_ptr(), &header, sizeof(Header));
    post(to, kHeaderTag, head);
    if (bytes.empty()) return;
    auto held = std::make_shared<std::string>(std::move(bytes));
    post(to, kBatchTag,
         at::from_blob(
             held->data(), {static_cast<std::int64_t>(held->size())}, [held](void*) {}, at::kByte));
  }

  /// Waits until at most `most` messages are under way.
  void settle(std::size_t most) {
    while (messages_.size() > most) {
      messages_.front().work.wait();
      messages_.pop_front();
    }
  }

 private:
  struct Message {
    Work work;
    at::Tensor tensor;
  };
  void post(int to, int tag, const at::Tensor& tensor) {
    const at::Tensor placed = tensor.to(control_device(group_));
    messages_.push_back({send_async(placed, to, group_, tag), placed});
  }

  const Group& group_;
  std::deque<Message> messages_;
};

/// Rank 0.
class SendingRun final : public LoaderRun {
 public:
  SendingRun(std::unique_ptr<StepQueue> steps, const Group& group, std::uint64_t pass)
      : steps_(std::move(steps)), group_(group), pass_(static_cast<std::int64_t>(pass)), outbox_(group_) {
    if (steps_->done())
      for (int rank = 1; rank < group_.size(); ++rank) outbox_.post(rank, {.pass = pass_, .kind = kEmpty}, {});
  }

  [[nodiscard]] bool done() const override { return steps_->done(); }
  [[nodiscard]] std::size_t position() const override { return position_; }

  RankBatch read() override {
    // Ranks that are slow hold rank 0 up when they are two steps behind: what was sent lies in memory until then.
    outbox_.settle(2 * 2 * static_cast<std::size_t>(group_.size() - 1));
    std::shared_ptr<Step> step;
    try {
      step = steps_->take();
    } catch (const std::exception& error) {
      for (int rank = 1; rank < group_.size(); ++rank) {
        const std::string text = error.what();
        outbox_.post(rank, {.pass = pass_, .kind = kFailed, .bytes = static_cast<std::int64_t>(text.size())}, text);
      }
      throw;
    }
    position_ = step->position_after;
    for (int rank = 1; rank < group_.size(); ++rank) {
      RankBatch& part = step->parts[static_cast<std::size_t>(rank)];
      if (!part.present && sent_any_) continue;  // its batch before was its last, and said so
      const auto bytes = static_cast<std::int64_t>(part.packed.size());
      outbox_.post(rank,
                   {.pass = pass_,
                    .kind = part.present ? kBatch : kEmpty,
                    .bytes = bytes,
                    .given = part.rows.given,
                    .own = part.rows.own,
                    .last = part.last ? 1 : 0,
                    .position = static_cast<std::int64_t>(position_)},
                   std::move(part.packed));
    }
    sent_any_ = true;
    return std::move(step->parts.front());
  }

  void finish() override { outbox_.settle(0); }

 private:
  std::unique_ptr<StepQueue> steps_;
  const Group group_;
  const std::int64_t pass_;
  Outbox outbox_;
  std::size_t position_ = 0;
  bool sent_any_ = false;
};

class ReceivingRun final : public LoaderRun {
 public:
  ReceivingRun(const Group& group, const DatasetOps& ops, std::uint64_t pass)
      : group_(group), ops_(ops), pass_(static_cast<std::int64_t>(pass)) {
    header_ = receive_header();  // only this tells whether there is a batch at all
    done_ = header_.kind == kEmpty;
  }

  [[nodiscard]] bool done() const override { return done_; }
  [[nodiscard]] std::size_t position() const override { return static_cast<std::size_t>(header_.position); }

  RankBatch read() override {
    if (!std::exchange(fresh_, false)) header_ = receive_header();
    std::string bytes(static_cast<std::size_t>(header_.bytes), '\0');
    if (!bytes.empty()) {
      at::Tensor buffer = at::empty({header_.bytes}, at::TensorOptions(at::kByte).device(control_device(group_)));
      recv(buffer, 0, group_, kBatchTag);
      const at::Tensor host = buffer.cpu();
      std::memcpy(bytes.data(), host.const_data_ptr(), bytes.size());
    }
    if (header_.kind == kFailed)
      throw DataError(message(site_of(group_), "DataLoader",
                              cat("expected a batch from rank 0, found that it could not "
                                  "read one: ",
                                  bytes)));
    done_ = header_.last != 0;
    RankBatch batch;
    batch.parcel = ops_.unpack(bytes);
    batch.rows = {header_.given, header_.own};
    batch.present = true;
    return batch;
  }

 private:
  Header receive_header() {
    at::Tensor numbers = at::empty({kHeaderSlots}, at::TensorOptions(at::kLong).device(control_device(group_)));
    recv(numbers, 0, group_, kHeaderTag);
    const at::Tensor host = numbers.cpu();
    Header header;
    std::memcpy(&header, host.const_data_ptr(), sizeof(Header));
    if (header.pass != pass_)
      throw UsageError(
          message(site_of(group_), "DataLoader",
                  cat("expected the next batch of pass ", pass_, " from rank 0, found one of pass ", header.pass,
                      "; all ranks must begin and leave the loops over loaders with "
                      "dispatch_batches together: decide with accelerator.any(...)")));
    return header;
  }

  const Group group_;
  const DatasetOps& ops_;
  const std::int64_t pass_;
  Header header_;
  bool fresh_ = true;
  bool done_ = false;
};

}  // namespace

std::unique_ptr<LoaderRun> make_dispatched_run(std::unique_ptr<StepQueue> steps, const Group& group,
                                               const DatasetOps& ops, std::uint64_t pass) {
  if (steps) return std::make_unique<SendingRun>(std::move(steps), group, pass);
  return std::make_unique<ReceivingRun>(group, ops, pass);
}

}  // namespace accel::detail
