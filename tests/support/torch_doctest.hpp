#pragma once

// In place of <doctest/doctest.h> where torch headers are seen: LibTorch's logging defines CHECK and its kin as well,
// and whichever comes last would win.
#include <c10/util/Logging.h>

#undef CHECK
#undef CHECK_EQ
#undef CHECK_NE
#undef CHECK_LT
#undef CHECK_LE
#undef CHECK_GT
#undef CHECK_GE

#include <doctest/doctest.h>
