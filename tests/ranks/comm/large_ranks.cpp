// Buffers beyond 2^31 bytes, where int counts end. Two ranks hold about 2.2 GB each.
#include "support/torch_doctest.hpp"

#include <accel/collectives.hpp>

#include <ATen/ATen.h>

#include <algorithm>

using namespace accel;

namespace {

constexpr std::int64_t kNumel = (std::int64_t{1} << 31) + 12345;

// In pieces: a comparison of the whole would need as much memory again.
bool all_are(const at::Tensor& tensor, int value) {
  constexpr std::int64_t kPiece = std::int64_t{1} << 26;
  for (std::int64_t first = 0; first < tensor.numel(); first += kPiece) {
    const at::Tensor piece = tensor.narrow(0, first, std::min(kPiece, tensor.numel() - first));
    if (piece.min().item<int>() != value || piece.max().item<int>() != value) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("all_reduce, broadcast and a message of more than 2^31 bytes") {
  const int rank = world().rank();
  at::Tensor tensor = at::full({kNumel}, rank + 1, at::kByte);
  all_reduce(tensor);
  CHECK(all_are(tensor, 3));

  tensor.fill_(rank + 5);
  broadcast(tensor, 1);
  CHECK(all_are(tensor, 6));

  tensor.fill_(rank + 7);
  if (rank == 0)
    send(tensor, 1);
  else
    recv(tensor, 0);
  CHECK(all_are(tensor, 7));
}

TEST_CASE("all_gather_into a buffer of more than 2^31 bytes") {
  const std::int64_t half = kNumel / 2;
  at::Tensor output = at::zeros({2, half}, at::kChar);
  const at::Tensor own = output[world().rank()];
  own.fill_(world().rank() + 1);
  all_gather_into(output, own);
  CHECK(all_are(output[0], 1));
  CHECK(all_are(output[1], 2));
}
