#include "comm/scale.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <vector>

using accel::detail::add_and_scale;
using accel::detail::scale;

TEST_CASE("scaling by one rank and factor 1 keeps every bit") {
  std::vector<float> values{0.1F, -3.0F, std::numeric_limits<float>::denorm_min(), 1e30F};
  const std::vector<float> before = values;
  scale(values.data(), 4, c10::ScalarType::Float, 1.0, 1);
  CHECK(values == before);
}

TEST_CASE("an average over three ranks is a division, not a product with a rounded third") {
  std::vector<float> values;
  for (int i = 1; i < 2000; ++i) values.push_back(static_cast<float>(i) * 0.37F);
  std::vector<float> expected = values;
  for (float& value : expected) value /= 3.0F;
  scale(values.data(), static_cast<std::int64_t>(values.size()), c10::ScalarType::Float, 1.0, 3);
  CHECK(values == expected);
}

TEST_CASE("adding and scaling in one pass gives the bits of two passes") {
  for (const double factor : {1.0, 0.3, 4.0 / 3.0})
    for (const int ranks : {1, 2, 3}) {
      std::vector<double> into;
      std::vector<double> from;
      for (int i = 0; i < 1000; ++i) {
        into.push_back(i * 0.1);
        from.push_back(1.0 / (i + 1));
      }
      std::vector<double> expected = into;
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += from[i];
      scale(expected.data(), 1000, c10::ScalarType::Double, factor, ranks);
      add_and_scale(into.data(), from.data(), 1000, c10::ScalarType::Double, factor, ranks);
      CHECK(into == expected);
    }
}
