#include "comm/c10d_work.hpp"

#include <accel/error.hpp>

#include <functional>
#include <string>
#include <utility>

namespace accel::detail {
namespace {

class C10dWork final : public WorkImpl {
 public:
  C10dWork(c10::intrusive_ptr<c10d::Work> work, Site site, const char* call)
      : work_(std::move(work)), site_(site), call_(call) {}

  void wait(std::chrono::milliseconds timeout) override {
    try {
      work_->wait(timeout);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      rethrow_as_comm_error(site_, call_, error);
    }
  }

  bool is_completed() override { return work_->isCompleted(); }

  void on_done(std::function<void(std::exception_ptr)> done) override {
    std::exception_ptr error;
    try {
      wait(std::chrono::milliseconds::zero());
    } catch (const std::exception&) {
      error = std::current_exception();
    }
    done(error);
  }

 private:
  const c10::intrusive_ptr<c10d::Work> work_;
  const Site site_;
  const char* const call_;
};

}  // namespace

void rethrow_as_comm_error(Site site, const char* call, const std::exception& error) {
  const std::string what = error.what();
  const std::string text = message(site, call, cat(what, "; the group can no longer be used, end the job"));
  if (what.find("imed out") != std::string::npos || what.find("imeout") != std::string::npos) throw TimeoutError(text);
  throw CommError(text);
}

Channel::Pending c10d_work(c10::intrusive_ptr<c10d::Work> work, Site site, const char* call) {
  return std::make_shared<C10dWork>(std::move(work), site, call);
}

}  // namespace accel::detail
