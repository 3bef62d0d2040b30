#pragma once

#include <accel/export.hpp>

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

namespace accel {

/// Reads a .npy file of NumPy (format 1.0 to 3.0): bool, int8 to int64, uint8 to uint64, float16 to float64, complex64
/// and complex128, of either byte order. Fortran order becomes C order. Local.
///
/// An array of 1 MiB and more in C order and in the byte order of this machine is mapped, not read: its pages come from
/// disk when they are used, and processes of one host share them. It may be changed in place, which goes to memory of
/// this process and never to the file. The file must not become shorter meanwhile; save_npy replaces files, which is
/// safe.
/// @throws DataError  the file cannot be read, is no .npy file, is longer or shorter than its header says, or holds
///                    another dtype (objects, texts, records, dates).
[[nodiscard]] ACCEL_API at::Tensor load_npy(const std::string& file);

/// Reads a .npz file (numpy.savez, numpy.savez_compressed) into memory, by the names of the arrays. `TensorDataset` of
/// the result is a data set whose batches are maps. Local.
/// @throws DataError  as load_npy; no zip file, a damaged member, or one that is no array.
[[nodiscard]] ACCEL_API std::map<std::string, at::Tensor> load_npz(const std::string& file);

/// Writes a tensor of any device as numpy.save does. The file appears under its name when it is whole. Local: where
/// several ranks would write one file, let one of them.
/// @throws UsageError  undefined, not dense, or of a dtype that NumPy lacks (bfloat16, float8).
/// @throws DataError   the file cannot be written.
ACCEL_API void save_npy(const std::string& file, const at::Tensor& tensor);

struct NpzOptions {
  bool compressed = false;  ///< smaller files that take longer, as numpy.savez_compressed
};

/// Writes tensors by name, as numpy.savez does. @throws UsageError, DataError  as save_npy.
ACCEL_API void save_npz(const std::string& file, const std::map<std::string, at::Tensor>& tensors,
                        const NpzOptions& options = {});

}  // namespace accel
