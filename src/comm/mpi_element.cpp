#include "comm/mpi_element.hpp"

#include "runtime/session.hpp"

#include <accel/error.hpp>

namespace accel::detail {

Element element_of(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Double:
      return {MPI_DOUBLE, 8};
    case c10::ScalarType::Float:
      return {MPI_FLOAT, 4};
    case c10::ScalarType::Long:
      return {MPI_INT64_T, 8};
    case c10::ScalarType::Int:
      return {MPI_INT32_T, 4};
    case c10::ScalarType::Short:
      return {MPI_INT16_T, 2};
    case c10::ScalarType::Char:
      return {MPI_INT8_T, 1};
    case c10::ScalarType::Byte:
    case c10::ScalarType::Bool:
      return {MPI_UINT8_T, 1};
    case c10::ScalarType::Half:
    case c10::ScalarType::BFloat16:
      return {MPI_UINT16_T, 2};
    default:
      throw InternalError(message(job_site(), "mpi", cat("expected a checked dtype, found ", c10::toString(dtype))));
  }
}

MPI_Op mpi_op(ReduceOp op, c10::ScalarType dtype) {
  const bool truth = dtype == c10::ScalarType::Bool;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return truth ? MPI_MAX : MPI_SUM;
    case ReduceOp::kMin:
      return MPI_MIN;
    case ReduceOp::kMax:
      return MPI_MAX;
    case ReduceOp::kProduct:
      return truth ? MPI_MIN : MPI_PROD;
  }
  return MPI_OP_NULL;
}

}  // namespace accel::detail
