#include "grad/unique_tensors.hpp"

#include <set>
#include <utility>

namespace accel::detail {

std::vector<NamedTensor> unique_tensors(std::vector<NamedTensor> tensors) {
  std::set<const void*> seen;
  std::erase_if(tensors, [&seen](const NamedTensor& each) {
    return each.tensor.defined() && !seen.insert(each.tensor.unsafeGetTensorImpl()).second;
  });
  return tensors;
}

}  // namespace accel::detail
