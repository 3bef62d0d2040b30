#include <accel/tensor_dataset.hpp>

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <torch/data/example.h>
#include "unit/data/dataset_checks.hpp"

#include <map>
#include <string>
#include <tuple>
#include <vector>

using accel::TensorDataset;
using accel::test::batches_of;
using accel::test::error_of;
using accel::test::values;

namespace {

struct Replay {
  at::Tensor state;
  std::vector<std::string> names;
  int horizon = 0;

  explicit Replay(int steps) : horizon(steps) {}
  friend auto accel_fields(Replay& replay) { return std::tie(replay.state, replay.names, replay.horizon); }
};

at::Tensor counted(std::int64_t rows, std::int64_t columns) {
  return at::arange(rows * columns, at::kFloat).reshape({rows, columns});
}

template <class Dataset>
auto rows(const Dataset& dataset, const std::vector<std::size_t>& indices) {
  return dataset.get_batch(indices);
}

}  // namespace

TEST_CASE("rows are taken in the order asked for, repeated ones too") {
  const TensorDataset dataset(counted(4, 2));
  CHECK(dataset.size() == 4);
  const at::Tensor batch = rows(dataset, {3, 0, 3});
  CHECK(batch.sizes() == at::IntArrayRef({3, 2}));
  CHECK(values<float>(batch) == std::vector<float>{6, 7, 0, 1, 6, 7});
  CHECK(values<float>(rows(dataset, {1, 2})) == std::vector<float>{2, 3, 4, 5});
  CHECK(values<float>(rows(dataset, {2, 1})) == std::vector<float>{4, 5, 2, 3});
  CHECK(rows(dataset, {}).sizes() == at::IntArrayRef({0, 2}));
}

TEST_CASE("a batch is memory of its own, also of neighbouring rows") {
  const TensorDataset dataset(counted(4, 2));
  rows(dataset, {1, 2}).zero_();
  rows(dataset, {2, 0}).zero_();
  CHECK(dataset.tensors().equal(counted(4, 2)));
}

TEST_CASE("batches have no history and are dense, whatever the data are") {
  const TensorDataset dataset(counted(4, 2).requires_grad_().t().contiguous().t());
  CHECK_FALSE(rows(dataset, {0, 1}).requires_grad());
  CHECK(rows(dataset, {0, 1}).is_contiguous());
  CHECK(rows(dataset, {1, 0}).is_contiguous());
}

TEST_CASE("several tensors give tuples, maps give maps, Example gives Example") {
  const TensorDataset pairs(counted(4, 2), at::arange(4, at::kLong));
  const auto [x, y] = rows(pairs, {2, 0});
  CHECK(values<float>(x) == std::vector<float>{4, 5, 0, 1});
  CHECK(values<std::int64_t>(y) == std::vector<std::int64_t>{2, 0});
  CHECK(std::get<2>(rows(TensorDataset(counted(2, 1), counted(2, 1), counted(2, 3)), {1})).size(1) == 3);

  const TensorDataset named(std::map<std::string, at::Tensor>{{"a", counted(4, 1)}, {"b", at::arange(4, at::kLong)}});
  const auto batch = rows(named, {1, 3});
  CHECK(values<float>(batch.at("a")) == std::vector<float>{1, 3});
  CHECK(values<std::int64_t>(batch.at("b")) == std::vector<std::int64_t>{1, 3});

  const TensorDataset examples(torch::data::Example<>{counted(4, 2), at::arange(4, at::kLong)});
  CHECK(values<std::int64_t>(rows(examples, {3}).target) == std::vector<std::int64_t>{3});
}

TEST_CASE("a struct keeps its numbers, and its lists follow the rows") {
  Replay replay(5);
  replay.state = counted(3, 1);
  replay.names = {"a", "b", "c"};
  const TensorDataset dataset(replay);
  const Replay batch = rows(dataset, {2, 0});
  CHECK(values<float>(batch.state) == std::vector<float>{2, 0});
  CHECK(batch.names == std::vector<std::string>{"c", "a"});
  CHECK(batch.horizon == 5);
}

TEST_CASE("copies share the data, and workers give the same batches") {
  const TensorDataset dataset(counted(10, 2), at::arange(10, at::kLong));
  const auto copy = dataset;
  CHECK(std::get<0>(copy.tensors()).data_ptr() == std::get<0>(dataset.tensors()).data_ptr());
  const auto alone = batches_of(dataset, 0);
  const auto threads = batches_of(dataset, 2);
  REQUIRE(alone.size() == 4);
  REQUIRE(threads.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(std::get<0>(alone[i]).equal(std::get<0>(threads[i])));
    CHECK(std::get<1>(alone[i]).equal(std::get<1>(threads[i])));
    CHECK(std::get<0>(alone[i]).select(1, 0).equal(std::get<1>(alone[i]) * 2));
  }
}

TEST_CASE("what has no rows or other rows is refused") {
  CHECK(error_of<accel::UsageError>([] { (void)TensorDataset(counted(3, 1), counted(4, 1)); }) ==
        "accel[0/1] TensorDataset: expected parts of one number of rows, found 3 in part 0 and 4 in part 1; give each "
        "sample one row of each");
  CHECK(error_of<accel::UsageError>([] { (void)TensorDataset(at::zeros({})); }) ==
        "accel[0/1] TensorDataset: expected tensors whose dimension 0 counts samples, found one without dimensions as "
        "part 0; give one with a row for each sample");
  CHECK(error_of<accel::UsageError>([] { (void)TensorDataset(counted(3, 1), at::Tensor()); }) ==
        "accel[0/1] TensorDataset: expected tensors whose dimension 0 counts samples, found an undefined one as part "
        "1; give one with a row for each sample");
  CHECK(error_of<accel::UsageError>([] { (void)TensorDataset(std::map<std::string, at::Tensor>()); }) ==
        "accel[0/1] TensorDataset: expected at least one tensor, found none; the data set would have no size");
  CHECK(error_of<accel::UsageError>([] {
          (void)rows(TensorDataset(counted(3, 1)), {0, 3});
        }) == "accel[0/1] get_batch: expected indices below 3, the size of the data set, found 3; take them from 0 on");
}
