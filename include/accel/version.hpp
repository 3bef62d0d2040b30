#pragma once

/// The version of accel; CMake reads it from here.
#define ACCEL_VERSION_MAJOR 0
#define ACCEL_VERSION_MINOR 1
#define ACCEL_VERSION_PATCH 0
#define ACCEL_VERSION "0.1.0"
