// What is wrong with rows on a device that updates do not wait for: the same code runs on the CPU here.
#include "metrics/class_rows.hpp"
#include "support/rank_expect.hpp"
#include "support/torch_doctest.hpp"

#include <ATen/ATen.h>

using namespace accel::metrics::detail;
using accel::test::contains;

namespace {

struct Later {
  at::Tensor first;
  std::int64_t updates = 0;

  ClassRows take(const std::vector<std::int64_t>& predicted, const std::vector<std::int64_t>& reference) {
    return class_rows(at::tensor(predicted, at::kLong), at::tensor(reference, at::kLong), {3, -1, 0.5},
                      {"Test.update", ++updates, false, first});
  }
};

}  // namespace

TEST_CASE("the first row that is wrong is kept, and told later") {
  Later later;
  later.take({0, 1}, {0, 1});
  CHECK(fault_text(later.first).empty());
  const ClassRows rows = later.take({0, 9, 9, 1}, {2, -1, 0, 5});
  CHECK(at::equal(rows.valid, at::tensor(std::vector<std::int64_t>{1, 0, 0, 0}).to(at::kBool)));
  later.take({0}, {4});
  CHECK(contains(fault_text(later.first), "in [0, 3), found prediction 9 at index 2 of update 2"));
}

TEST_CASE("an empty batch is no fault, and hides none") {
  Later later;
  later.take({}, {});
  CHECK(fault_text(later.first).empty());
  later.take({1}, {3});
  later.take({}, {});
  later.take({1}, {1});
  CHECK(contains(fault_text(later.first), "found reference 3 at index 0 of update 2"));
}
