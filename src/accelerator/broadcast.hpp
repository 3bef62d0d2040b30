#pragma once

#include <accel/collectives.hpp>
#include <accel/model.hpp>
#include <accel/source_location.hpp>

#include <string>
#include <vector>

namespace accel::detail {

/// Checks that all ranks have the same tensors: names, shapes, dtypes, trainability.
///
/// Collective. @param problem  what is wrong with this rank's model already; empty if nothing.
/// @throws UsageError  on all ranks: names the first rank and tensor that differ and both values, or the problem.
void check_agreement(const ModelRef& model, const std::string& problem, const Group& group, const char* call,
                     const SourceLocation& where);

enum class Placement {
  kInto,     ///< into the tensors' own memory
  kNewData,  ///< in new memory, and only where bits differ: what a graph under way saved stays valid (case 82)
};

/// Copies the tensors of rank `root` to all ranks, packed by dtype and device. Collective.
void broadcast_tensors(const std::vector<NamedTensor>& tensors, int root, Placement placement, const Group& group,
                       const SourceLocation& where);

}  // namespace accel::detail
