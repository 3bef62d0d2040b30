#pragma once

#include <accel/export.hpp>
#include <accel/to_device.hpp>

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <string>

namespace accel {

/// Reads an IDX file, the format of the MNIST files, plain or gzip: uint8, int8, int16, int32, float32 or float64 of
/// any shape. Plain files of bytes are mapped, not read. Local.
/// @throws DataError  the file cannot be read, or its magic number, dimensions or length are wrong.
[[nodiscard]] ACCEL_API at::Tensor load_idx(const std::string& file);

struct MnistOptions {
  bool as_float = true;     ///< pixels of a batch are float32 in 0 .. 1; else uint8 in 0 .. 255
  bool channel = false;     ///< images of a batch are [B, 1, 28, 28], as convolutions take them; else [B, 28, 28]
  std::size_t at_most = 0;  ///< only the first so many images; 0: all
};

/// MNIST, or a data set of its form (Fashion-MNIST, KMNIST, EMNIST): 28 x 28 pixels and a label. A data set with an
/// index whose batches need no collation. Copies share the pixels, and all functions may be called by several threads.
class ACCEL_API Mnist {
 public:
  /// Programs that use a batch include torch/data/example.h, or torch/torch.h.
  using BatchType = torch::data::Example<at::Tensor, at::Tensor>;

  /// From two IDX files, plain or gzip, as in train-images-idx3-ubyte.gz and train-labels-idx1-ubyte.gz.
  /// @throws DataError  as load_idx; not uint8 images of 28 x 28 with as many labels.
  Mnist(const std::string& images_file, const std::string& labels_file, const MnistOptions& options = {});

  /// From a CSV file, plain or gzip: a label and 784 pixels in 0 .. 255 on each line, under a header row or none.
  /// @throws DataError  the file cannot be read, or a line is of another form; names it.
  [[nodiscard]] static Mnist from_csv(const std::string& file, const MnistOptions& options = {});

  /// data: as the options say; target: int64 [indices]; both new tensors.
  /// @throws UsageError  an index is not below size().
  [[nodiscard]] BatchType get_batch(c10::ArrayRef<std::size_t> indices) const;
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(targets_.size(0)); }

  /// All images, uint8 [size, 28, 28], and all labels, int64 [size].
  [[nodiscard]] const at::Tensor& images() const { return images_; }
  [[nodiscard]] const at::Tensor& targets() const { return targets_; }

 private:
  Mnist(at::Tensor images, at::Tensor targets, const MnistOptions& options);

  at::Tensor images_;
  at::Tensor targets_;
  MnistOptions options_;
};

}  // namespace accel
