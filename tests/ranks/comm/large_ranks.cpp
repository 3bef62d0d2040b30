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

TEST_CASE("reduce, gather and scatter of more than 2^31 bytes") {
  const int rank = world().rank();
  {
    at::Tensor tensor = at::full({kNumel}, rank + 1, at::kByte);
    reduce(tensor, 1);
    CHECK(all_are(tensor, rank == 1 ? 3 : 1));
  }
  // Of unequal lengths: rank 0 gives more than an int counts.
  const auto parts = gather(at::full({rank == 0 ? kNumel : 5}, rank + 3, at::kByte), 1);
  REQUIRE(parts.size() == static_cast<std::size_t>(rank == 1 ? 2 : 0));
  if (rank == 1) {
    CHECK(parts[0].numel() == kNumel);
    CHECK(all_are(parts[0], 3));
    CHECK(all_are(parts[1], 4));
  }
  const std::int64_t half = kNumel / 2;
  at::Tensor input;
  if (rank == 0) {
    input = at::full({2, half}, 5, at::kByte);
    input[1].fill_(6);
  }
  at::Tensor own = at::zeros({half}, at::kByte);
  scatter(own, input, 0);
  CHECK(all_are(own, rank + 5));
}

TEST_CASE("all_to_all of more than 2^31 bytes, in equal slices and from one rank to another") {
  const int rank = world().rank();
  const std::int64_t half = kNumel / 2;
  {
    at::Tensor input = at::full({2, half}, 10 * rank, at::kByte);
    input[1].add_(1);
    at::Tensor output = at::zeros_like(input);
    all_to_all(output, input);
    CHECK(all_are(output[0], rank));
    CHECK(all_are(output[1], 10 + rank));
  }
  std::vector<at::Tensor> inputs{at::full({3}, 10 * rank, at::kByte), at::full({4}, 10 * rank + 1, at::kByte)};
  if (rank == 1) inputs[0] = at::full({kNumel}, 10, at::kByte);
  const auto outputs = all_to_all(inputs);
  CHECK(outputs[1].numel() == (rank == 0 ? kNumel : 4));
  CHECK(outputs[0].numel() == (rank == 0 ? 3 : 4));
  CHECK(all_are(outputs[0], rank));
  CHECK(all_are(outputs[1], 10 + rank));
}
