#pragma once

#include <accel/export.hpp>

#include <ATen/core/Generator.h>

namespace accel {

/// The random numbers of the batch that this thread is reading, for transforms inside a data set or a collate function:
/// `at::rand({2}, accel::data_generator())`. They depend on the loader's seed, the epoch and the batch's place in it
/// alone: not on the number of workers, nor, for equal batches, on the number of ranks, nor on where a run was resumed.
/// Outside a loader: LibTorch's default generator of the CPU. Local.
[[nodiscard]] ACCEL_API at::Generator data_generator();

}  // namespace accel
