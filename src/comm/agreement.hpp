#pragma once

#include <accel/collectives.hpp>
#include <accel/source_location.hpp>

#include <string>

namespace accel::detail {

/// What a rank says of a thing that all ranks must have alike.
struct Claim {
  std::string description;  ///< lines; equal on all ranks if the things are
  std::string problem;      ///< why this rank cannot take part; empty if it can
  const char* thing;        ///< as in "expected the same model on all ranks"
  const char* remedy;
};

/// Compares what ranks say: as hashes, and only where they differ as texts.
///
/// Collective. @throws UsageError  on all ranks: names the first rank with a problem, or the first that differs and
/// both lines; in a group of one, this rank's problem.
void agree_on(const Claim& claim, const Group& group, const char* call, const SourceLocation& where);

}  // namespace accel::detail
