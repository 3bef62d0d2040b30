#pragma once

/// All of accel but interop.hpp, which shows MPI and c10d.

#include <accel/accelerator.hpp>
#include <accel/averaging.hpp>
#include <accel/collectives.hpp>
#include <accel/csv_dataset.hpp>
#include <accel/data.hpp>
#include <accel/device.hpp>
#include <accel/digits.hpp>
#include <accel/error.hpp>
#include <accel/json_dataset.hpp>
#include <accel/metrics.hpp>
#include <accel/mnist.hpp>
#include <accel/model.hpp>
#include <accel/numpy.hpp>
#include <accel/optimizer.hpp>
#include <accel/process.hpp>
#include <accel/progress.hpp>
#include <accel/running_statistics.hpp>
#include <accel/scheduler.hpp>
#include <accel/table.hpp>
#include <accel/tensor_dataset.hpp>
#include <accel/text_dataset.hpp>
#include <accel/tree.hpp>
#include <accel/version.hpp>
