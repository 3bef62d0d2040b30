#pragma once

#include <ATen/autocast_mode.h>

namespace accel::detail {

/// Turns autocast off while alive: backward, hooks and optimizer steps run in the dtypes of their tensors. Where it was
/// on, its cache of cast weights is cleared too: what runs here makes it stale.
class AutocastOff {
 public:
  AutocastOff()
      : cpu_(at::autocast::is_autocast_enabled(c10::kCPU)), cuda_(at::autocast::is_autocast_enabled(c10::kCUDA)) {
    if (cpu_) at::autocast::set_autocast_enabled(c10::kCPU, false);
    if (cuda_) at::autocast::set_autocast_enabled(c10::kCUDA, false);
    if (cpu_ || cuda_) at::autocast::clear_cache();
  }
  ~AutocastOff() {
    if (cpu_) at::autocast::set_autocast_enabled(c10::kCPU, true);
    if (cuda_) at::autocast::set_autocast_enabled(c10::kCUDA, true);
  }
  AutocastOff(const AutocastOff&) = delete;
  AutocastOff& operator=(const AutocastOff&) = delete;

 private:
  bool cpu_;
  bool cuda_;
};

}  // namespace accel::detail
