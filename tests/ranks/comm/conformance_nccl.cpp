// The suite over NCCL, one rank a GPU.
#include "conformance.hpp"

#include <accel/device.hpp>

#include <cstdio>
#include <cstdlib>

namespace accel::test {

const std::vector<Subject>& subjects() {
  static const std::vector<Subject> all = [] {
    if (!at::hasCUDA()) {
      std::printf("skipped: no GPU\n");
      std::fflush(stdout);
      std::_Exit(77);
    }
    return std::vector<Subject>{{"NCCL", world(), device_for(process()), /*one_rounding=*/false}};
  }();
  return all;
}

}  // namespace accel::test
