#include "comm/shared_buffer.hpp"

#include "comm/shared_reduction.hpp"
#include "core/log.hpp"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace accel::detail {
namespace {

/// Where marks and data of each buffer lie in the segment of every rank. The first line tells one segment from another.
struct Places {
  std::vector<std::size_t> marks;
  std::vector<std::size_t> data;
  std::size_t bytes = kCacheLine;

  Places(const std::vector<at::Tensor>& flats, int local_size) {
    for (const at::Tensor& flat : flats) {
      marks.push_back(bytes);
      bytes += up_to_line(MarkSet::bytes(local_size));
      data.push_back(bytes);
      bytes += up_to_line(flat.nbytes());
    }
  }
};

/// The segments of all ranks of this host. The marks in that of the first rank are the ones that are used.
using Segments = std::vector<SharedSegment>;

class SharedBuffer final : public ReduceBuffer {
 public:
  SharedBuffer(at::Tensor flat, std::shared_ptr<SharedReduction> reduction, MPI_Comm across, bool one_host,
               std::shared_ptr<MpiEngine> engine, std::shared_ptr<ReduceHelper> helper)
      : ReduceBuffer(std::move(flat)),
        reduction_(std::move(reduction)),
        across_(across),
        one_host_(one_host),
        engine_(std::move(engine)),
        helper_(std::move(helper)) {}

  void start(const ReduceSpec& spec, const Group&, const SourceLocation& where) override {
    describe(spec, where);
    if (one_host_) {
      engine_->begin_outside(call_);
      generation_ = reduction_->begin(spec, true);
      helper_->push(reduction_, generation_);
    } else {
      engine_->throw_if_dead(call_);
      generation_ = reduction_->begin(spec, true);
      job_ = carry_across(true);
    }
  }

  void wait() override {
    if (const auto job = std::exchange(job_, nullptr)) job->wait(std::chrono::milliseconds::zero());
    finish();
  }

  void run(const ReduceSpec& spec, const Group&, const SourceLocation& where) override {
    describe(spec, where);
    if (one_host_) {
      engine_->begin_outside(call_);
      // One piece is done by the last to come: the others need not be woken before it is.
      generation_ = reduction_->begin(spec, reduction_->pieces() > 1);
    } else {
      engine_->throw_if_dead(call_);
      generation_ = reduction_->begin(spec, true);
      carry_across(false);
    }
    finish();
  }

 private:
  void describe(const ReduceSpec& spec, const SourceLocation& where) {
    call_ = {.name = "all_reduce",
             .operation = Operation::kAllReduce,
             .purpose = spec.purpose,
             .bytes = bytes_of(flat()),
             .where = where,
             .transport = Transport::kShared,
             .grace = kMeetingGrace};
  }

  Channel::Pending carry_across(bool async) {
    return engine_->call(call_, async,
                         [reduction = reduction_, generation = generation_, across = across_, call = call_,
                          engine = engine_.get()](const Ring&) {
                           const std::int64_t bytes = reduction->reduce_slice(generation, across);
                           if (bytes > 0) engine->carry_by_mpi(call, bytes);
                         });
  }

  void finish() {
    try {
      if (one_host_)
        reduction_->complete(generation_);
      else
        reduction_->await_all(generation_);
    } catch (const MeetFailure& failure) {
      std::rethrow_exception(engine_->failed(call_, failure));
    } catch (const std::exception& error) {  // a piece may be lost with it: the others must not wait for it
      std::rethrow_exception(engine_->failed(call_, error.what()));
    }
  }

  const std::shared_ptr<SharedReduction> reduction_;
  const MPI_Comm across_;
  const bool one_host_;
  const std::shared_ptr<MpiEngine> engine_;
  const std::shared_ptr<ReduceHelper> helper_;
  MpiCall call_;
  std::uint64_t generation_ = 0;
  Channel::Pending job_;
};

/// Makes and opens segments, in two exchanges of texts: where each rank's is, and whether all could be opened.
class SegmentExchange {
 public:
  SegmentExchange(std::size_t bytes, const HostRanks& ranks, const Group& group)
      : bytes_(bytes), ranks_(ranks), group_(group) {}

  /// Null, on all ranks, where any rank has a problem; `problem` then names the first.
  std::shared_ptr<Segments> run(std::string& problem) {
    for (const SharedMemoryMode kind : kinds_to_try(shared_memory_mode()))
      if (auto segments = run(kind, problem)) return segments;
    return nullptr;
  }

 private:
  std::shared_ptr<Segments> run(SharedMemoryMode kind, std::string& problem) {
    std::vector<SharedSegment> segments(ranks_.ranks.size());
    SharedSegment& own = segments[static_cast<std::size_t>(ranks_.local_rank)];
    std::string trouble;
    try {
      own = create(kind);
    } catch (const std::runtime_error& error) {
      trouble = error.what();
    }
    const auto invitations = exchange(trouble.empty() ? cat("at ", mark_, ' ', own.path()) : cat("no ", trouble));
    if (failed(invitations, problem)) return nullptr;
    try {
      for (std::size_t local = 0; local < segments.size(); ++local)
        if (static_cast<int>(local) != ranks_.local_rank)
          segments[local] = open(invitations[static_cast<std::size_t>(ranks_.ranks[local])]);
    } catch (const std::runtime_error& error) {
      trouble = error.what();
    }
    if (failed(exchange(trouble.empty() ? "at" : cat("no ", trouble)), problem)) return nullptr;
    for (SharedSegment& segment : segments) segment.close_door();
    return std::make_shared<Segments>(std::move(segments));
  }

  SharedSegment create(SharedMemoryMode kind) {
    const std::size_t limit = shared_memory_limit();
    if (bytes_ > limit || SharedSegment::bytes_made() > limit - bytes_)
      throw std::runtime_error(cat(grouped(static_cast<std::int64_t>(bytes_)), " bytes of gradients, with ",
                                   grouped(static_cast<std::int64_t>(SharedSegment::bytes_made())),
                                   " shared already, are more than ACCEL_SHARED_MEMORY_LIMIT allows"));
    SharedSegment segment = SharedSegment::create(bytes_, kind);
    mark_ = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()) ^
            reinterpret_cast<std::uintptr_t>(segment.data());
    std::memcpy(segment.data(), &mark_, sizeof(mark_));
    return segment;
  }

  [[nodiscard]] SharedSegment open(const std::string& invitation) const {
    std::istringstream words(invitation);
    std::string at;
    std::uint64_t mark = 0;
    std::string path;
    words >> at >> mark >> path;
    SharedSegment segment = SharedSegment::open(path, bytes_);
    if (std::memcmp(segment.data(), &mark, sizeof(mark)) != 0)
      throw std::runtime_error("what another rank of this host shares is not seen here (process namespaces?)");
    return segment;
  }

  [[nodiscard]] std::vector<std::string> exchange(const std::string& text) const {
    return all_gather_text(text, Purpose::kControl, group_, SourceLocation::current());
  }

  static bool failed(const std::vector<std::string>& texts, std::string& problem) {
    for (std::size_t rank = 0; rank < texts.size(); ++rank)
      if (texts[rank].starts_with("no ")) {
        problem = cat("rank ", rank, ": ", texts[rank].substr(3));
        return true;
      }
    return false;
  }

  const std::size_t bytes_;
  const HostRanks& ranks_;
  const Group& group_;
  std::uint64_t mark_ = 0;
};

}  // namespace

std::vector<std::shared_ptr<ReduceBuffer>> shared_buffers(const std::vector<at::Tensor>& flats, const Group& group,
                                                          const MpiHost& host, const std::shared_ptr<MpiEngine>& engine,
                                                          const std::shared_ptr<ReduceHelper>& helper) {
  // What cannot be combined here is for the group's all_reduce to refuse, in its words.
  if (!std::all_of(flats.begin(), flats.end(), [](const auto& flat) { return can_combine(flat.scalar_type()); }))
    return {};
  const HostRanks& ranks = host.board->ranks();
  const Places places(flats, ranks.size());
  std::string problem;
  const auto segments = SegmentExchange(places.bytes, ranks, group).run(problem);
  std::vector<std::shared_ptr<ReduceBuffer>> buffers;
  if (!segments) {
    if (group.rank() == 0)
      log_once("shared buffers", LogLevel::kWarning, site_of(group), "shared memory",
               cat("some gradients go through MPI, which is slower on one host: ", problem,
                   "; make room (a smaller model or bucket, ACCEL_SHARED_MEMORY, /dev/shm), or set "
                   "ACCEL_SHARED_MEMORY=0 to do without and without this notice"));
    return buffers;
  }
  for (std::size_t at = 0; at < flats.size(); ++at) {
    std::vector<std::byte*> data;
    for (const SharedSegment& segment : *segments) data.push_back(segment.data() + places.data[at]);
    at::Tensor flat = at::from_blob(
        data[static_cast<std::size_t>(ranks.local_rank)], flats[at].sizes(), [segments](void*) {}, flats[at].options());
    flat.copy_(flats[at]);
    auto reduction = std::make_shared<SharedReduction>(
        host.board, std::move(data), segments->front().data() + places.marks[at], flat.numel(), flat.scalar_type(),
        ranks.one_host() ? 0 : host.slices, segments);
    buffers.push_back(std::make_shared<SharedBuffer>(std::move(flat), std::move(reduction), host.across,
                                                     ranks.one_host(), engine, helper));
  }
  return buffers;
}

}  // namespace accel::detail
