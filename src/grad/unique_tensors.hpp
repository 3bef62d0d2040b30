#pragma once

#include <accel/model.hpp>

#include <vector>

namespace accel::detail {

/// The list with each tensor once, under its first name: a tied weight has several.
std::vector<NamedTensor> unique_tensors(std::vector<NamedTensor> tensors);

}  // namespace accel::detail
