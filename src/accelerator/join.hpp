#pragma once

#include <accel/join.hpp>

namespace accel::detail {

/// What an accelerator knows while a join_uneven_inputs guard lives. All but the options is of the loop that ended
/// last, or is under way, and equal on all ranks.
struct JoinState {
  JoinOptions options = {};
  bool somebody_ran_out = false;  ///< before the others
  int last_active = 0;            ///< lowest rank with a micro-batch in the last round
};

}  // namespace accel::detail
