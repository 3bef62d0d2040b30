#pragma once

/// Marks what a shared build of accel exports; everything else is hidden. It stands where a standard attribute may:
/// before a declaration or after `class`, beside others such as [[nodiscard]].
#define ACCEL_API [[gnu::visibility("default")]]
