#include <accel/device.hpp>

#include "core/message.hpp"

#include <accel/error.hpp>

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <unistd.h>
#include <string_view>

namespace accel {
namespace {

constexpr std::string_view kCall = "device_for";

detail::Site site_of(const Process& process) {
  return {process.rank, process.size};
}

int visible_gpus() {
  if (!at::hasCUDA()) return 0;
  return static_cast<int>(at::detail::getCUDAHooks().deviceCount());
}

// Why there is no CUDA device, in the order in which a user would look.
std::string what_is_missing() {
  // The hooks that know a CUDA runtime come with libtorch_cuda, whether or not a driver is there.
  if (!at::detail::getCUDAHooks().hasCUDART())
    return "found a LibTorch without CUDA (libtorch_cuda is not loaded); build accel with the CUDA set of LibTorch "
           "(ACCEL_CUDA=1 make setup build)";
  if (::access("/proc/driver/nvidia/version", F_OK) != 0)
    return "found no NVIDIA driver on this host; install it, or ask for the CPU";
  return "found no visible device; check CUDA_VISIBLE_DEVICES and the driver's version (nvidia-smi)";
}

c10::Device cuda_device(const Process& process, c10::DeviceIndex asked) {
  const int gpus = visible_gpus();
  if (gpus == 0)
    throw UsageError(
        detail::message(site_of(process), kCall, detail::cat("expected a CUDA device, ", what_is_missing())));
  if (asked < 0) return {c10::kCUDA, static_cast<c10::DeviceIndex>(process.local_rank % gpus)};
  if (asked >= gpus)
    throw UsageError(detail::message(
        site_of(process), kCall,
        detail::cat("expected a CUDA device from 0 to ", gpus - 1, ", found cuda:", static_cast<int>(asked),
                    "; leave the index out to get one by local rank")));
  return {c10::kCUDA, asked};
}

}  // namespace

c10::Device device_for(const Process& process, std::optional<c10::Device> requested) {
  if (!requested) return visible_gpus() > 0 ? cuda_device(process, -1) : c10::Device(c10::kCPU);
  if (requested->is_cuda()) return cuda_device(process, requested->index());
  if (requested->is_cpu()) return c10::Device(c10::kCPU);
  throw UsageError(detail::message(site_of(process), kCall,
                                   detail::cat("expected a CPU or CUDA device, found ", requested->str(),
                                               "; accel reduces gradients on these two only")));
}

}  // namespace accel
