#pragma once

/// Streaming metrics of an evaluation, over all ranks the same as on one:
///
/// @code
/// accel::metrics::F1 f1({.average = accel::metrics::Average::kMacro, .num_classes = 10});
/// for (auto& batch : evaluation) f1.update(model->forward(batch.data), batch.target);
/// accelerator.print("F1 ", f1.compute(accelerator.group()));
/// @endcode
/// Each is a value of the same shape: options in the constructor, `update`, `merge`, `reset`, `compute()` of this
/// rank's data and the collective `compute(group)` of all ranks' data. Copies are apart from what they were copied
/// from.

#include <accel/metrics_classes.hpp>
#include <accel/metrics_numbers.hpp>
