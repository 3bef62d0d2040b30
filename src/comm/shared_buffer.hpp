#pragma once

#include "comm/mpi_engine.hpp"
#include "comm/mpi_host.hpp"
#include "comm/reduce_buffer.hpp"
#include "comm/reduce_helper.hpp"

#include <memory>
#include <vector>

namespace accel::detail {

/// Copies of `flats` in memory that the ranks of this host share. An all-reduce of such a buffer copies nothing: when
/// all ranks have filled theirs, each takes pieces of the range, sums the piece of all buffers in order of rank and
/// writes it to all of them. On several hosts each rank has one slice of the range, sums it over its host, adds up the
/// slices of the hosts by MPI and writes the result to the buffers of its host: what crosses the network is one copy of
/// the gradients a host.
///
/// Source: the prototype of this design against MPI and gloo; the slices across hosts are those of hierarchical
/// all-reduce (Jia et al., Highly Scalable Deep Learning Training System with Mixed-Precision, 2018).
///
/// Collective over the group. Empty, on all ranks, where a rank cannot have the memory; one notice says why.
/// @param group   for the exchange of paths and problems
/// @param helper  does what it can in the background
std::vector<std::shared_ptr<ReduceBuffer>> shared_buffers(const std::vector<at::Tensor>& flats, const Group& group,
                                                          const MpiHost& host, const std::shared_ptr<MpiEngine>& engine,
                                                          const std::shared_ptr<ReduceHelper>& helper);

}  // namespace accel::detail
