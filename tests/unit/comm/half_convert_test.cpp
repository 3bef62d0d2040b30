#include "support/torch_doctest.hpp"

#include "comm/half_convert.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

namespace {

// All 65,536 values there are, there and back, against LibTorch's own conversion of one element.
template <class Half>
void check_every_value() {
  std::vector<Half> values;
  for (int bits = 0; bits < 65536; ++bits) values.emplace_back(static_cast<std::uint16_t>(bits), Half::from_bits());
  std::vector<float> wide(values.size());
  std::vector<Half> back(values.size());
  accel::detail::widen(wide.data(), values.data(), static_cast<std::int64_t>(values.size()));
  accel::detail::narrow(back.data(), wide.data(), static_cast<std::int64_t>(wide.size()));
  int wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto expected = static_cast<float>(values[i]);
    const bool number = !std::isnan(expected);
    if (std::isnan(wide[i]) == number ||
        (number && std::bit_cast<std::uint32_t>(wide[i]) != std::bit_cast<std::uint32_t>(expected)))
      ++wrong;
    if (number && back[i].x != values[i].x) ++wrong;
  }
  CHECK(wrong == 0);
}

template <class Half>
void check_rounding() {
  std::vector<float> values;
  for (int i = 0; i < 5003; ++i) values.push_back((static_cast<float>(i) - 2500.0F) * 1.0009765F * 0.37F);
  values.insert(values.end(), {1e-8F, 65519.9F, 65520.0F, 1e30F, -1e-40F, 2049.0F, 2051.0F});
  std::vector<Half> narrowed(values.size());
  accel::detail::narrow(narrowed.data(), values.data(), static_cast<std::int64_t>(values.size()));
  int wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (narrowed[i].x != static_cast<Half>(values[i]).x) ++wrong;
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("every 16-bit float widens to its value and comes back") {
  check_every_value<c10::Half>();
  check_every_value<c10::BFloat16>();
}

TEST_CASE("narrowing rounds to nearest even, overflows to infinity and keeps subnormals") {
  check_rounding<c10::Half>();
  check_rounding<c10::BFloat16>();
}

TEST_CASE("lengths that are no multiple of the processor's width are converted to the last element") {
  for (std::int64_t numel = 0; numel < 20; ++numel) {
    std::vector<c10::Half> values(static_cast<std::size_t>(numel), c10::Half(1.5F));
    std::vector<float> wide(static_cast<std::size_t>(numel) + 1, -1.0F);
    accel::detail::widen(wide.data(), values.data(), numel);
    for (std::int64_t i = 0; i < numel; ++i) CHECK(wide[static_cast<std::size_t>(i)] == 1.5F);
    CHECK(wide.back() == -1.0F);
  }
}
