#pragma once

#include "comm/reduction.hpp"
#include "runtime/mpi.hpp"

#include <accel/collectives.hpp>

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>

namespace accel::detail {

/// An MPI call that returned an error; the engine turns it into a CommError that names the operation.
struct MpiFailure {
  int code;
  const char* call;
};

inline void require_mpi(int rc, const char* call) {
  if (rc != MPI_SUCCESS) [[unlikely]]
    throw MpiFailure{rc, call};
}

/// How elements of a dtype are combined by MPI. 16-bit floats travel as 16-bit words and are combined by us.
struct Element {
  MPI_Datatype type = MPI_BYTE;
  std::size_t bytes = 1;
};

Element element_of(c10::ScalarType dtype);

/// For bool, sum and max are "or", product and min are "and": MPI has no sum of truth values.
MPI_Op mpi_op(ReduceOp op, c10::ScalarType dtype);

}  // namespace accel::detail
