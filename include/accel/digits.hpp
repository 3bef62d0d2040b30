#pragma once

#include <accel/export.hpp>
#include <accel/to_device.hpp>

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <string>

namespace accel {

/// Which part of the digits.
enum class DigitsSplit {
  kTrain,  ///< 4,000 images, 400 of each digit
  kTest,   ///< 1,000 images, 100 of each digit
};

struct DigitsOptions {
  std::string file = {};    ///< mnist_5k.csv.gz; empty: in $ACCEL_DEPS, or where `make setup` put it for this build
  std::size_t at_most = 0;  ///< only the first so many images of the split; 0: all
};

/// 5,000 handwritten digits of MNIST, for examples and tests: a map-style data set whose batches need no collation.
/// The split is stratified and always the same, and its images come in a mixed order.
class ACCEL_API Digits {
 public:
  /// Programs that use a batch include torch/data/example.h, or torch/torch.h.
  using BatchType = torch::data::Example<at::Tensor, at::Tensor>;

  static constexpr int kClasses = 10;

  /// @throws UsageError  the file is missing, damaged, or not the one expected; names it and the remedy.
  explicit Digits(DigitsSplit split, const DigitsOptions& options = {});

  /// data: float32 [indices, 1, 28, 28] in 0 .. 1; target: int64 [indices]; both new tensors.
  [[nodiscard]] BatchType get_batch(c10::ArrayRef<std::size_t> indices) const;
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(targets_.size(0)); }

  /// All images, [size, 1, 28, 28], and all targets, [size].
  [[nodiscard]] const at::Tensor& images() const { return images_; }
  [[nodiscard]] const at::Tensor& targets() const { return targets_; }

 private:
  at::Tensor images_;
  at::Tensor targets_;
};

}  // namespace accel
