// compare_runs <tolerance> <run> <run>: whether two files of losses and weights, as the examples save them, are equal,
// bit for bit where the tolerance is 0. Differences are relative where values are large: |a - b| <= tolerance x
// max(1, |a|).
#include <torch/serialize.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

int differ(const char* text, std::size_t index, double distance) {
  std::printf("%s (tensor %zu, difference %.3g)\n", text, index, distance);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::puts("expected: compare_runs <tolerance> <run> <run>");
    return 2;
  }
  const double tolerance = std::atof(argv[1]);
  std::vector<torch::Tensor> first;
  std::vector<torch::Tensor> second;
  torch::load(first, argv[2]);
  torch::load(second, argv[3]);
  if (first.size() != second.size() || first.size() < 2) return differ("different numbers of tensors, or none", 0, 0.0);
  double largest = 0.0;
  for (std::size_t index = 0; index < first.size(); ++index) {
    const auto& a = first[index];
    const auto& b = second[index];
    if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return differ("different tensors", index, 0.0);
    if (!torch::isfinite(a).all().item<bool>()) return differ("not finite", index, 0.0);
    if (a.numel() == 0) return differ("an empty tensor", index, 0.0);
    if (a.equal(b)) continue;
    const auto distance = ((a - b).abs() / a.abs().clamp_min(1.0)).max().item<double>();
    if (!(distance <= tolerance)) return differ("different values", index, distance);
    largest = std::max(largest, distance);
  }
  std::printf("equal: %zu tensors, largest difference %.3g\n", first.size(), largest);
}
