#include <accel/tree_methods.hpp>

#include "accelerator/accelerator_impl.hpp"
#include "core/message.hpp"
#include "runtime/session.hpp"

#include <accel/error.hpp>

#include <utility>

namespace accel::detail {

TreeMethods::TreeMethods(std::shared_ptr<AcceleratorImpl> impl) : impl_(std::move(impl)) {}
TreeMethods::~TreeMethods() = default;
TreeMethods::TreeMethods(TreeMethods&&) noexcept = default;
TreeMethods& TreeMethods::operator=(TreeMethods&&) noexcept = default;

const std::shared_ptr<AcceleratorImpl>& TreeMethods::shared() const {
  if (!impl_)
    throw UsageError(message(job_site(), "Accelerator",
                             "expected an accelerator, found one that was moved from; use the one it was "
                             "moved to"));
  return impl_;
}

const Group& TreeMethods::user_group(const char* call) const {
  shared()->refuse_in_join(call);
  return shared()->group();
}

const Group& TreeMethods::own_group() const {
  return shared()->group();
}

std::optional<BatchRows> TreeMethods::rows_at_hand() const {
  return shared()->rows_at_hand();
}

}  // namespace accel::detail
