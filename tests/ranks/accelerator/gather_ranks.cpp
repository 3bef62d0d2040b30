// Collectives on trees, and the results of loops over data that is gathered row by row.

#include <accel/accelerator.hpp>
#include <accel/error.hpp>

#include "support/rank_expect.hpp"
#include "support/torch_doctest.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/data/example.h>

#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

using accel::Accelerator;
using accel::test::contains;
using accel::test::error_text;
using accel::test::rank;
using accel::test::ranks;

namespace {

using Ids = std::vector<std::int64_t>;
using Named = std::map<std::string, at::Tensor>;

/// Sample i is the number i, as a tensor.
struct Numbers {
  std::int64_t count = 0;
  [[nodiscard]] at::Tensor get_batch(c10::ArrayRef<std::size_t> indices) const {
    return at::tensor(Ids(indices.begin(), indices.end()), at::kLong);
  }
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(count); }
};

Ids ids_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  return {flat.const_data_ptr<std::int64_t>(), flat.const_data_ptr<std::int64_t>() + flat.numel()};
}

Ids first(std::int64_t count) {
  Ids ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

/// What a loop of evaluation gathers: all ids, and how many in each step.
std::pair<Ids, Ids> evaluated(Accelerator& accelerator, std::int64_t samples, const accel::DataLoaderOptions& options) {
  const auto loader = accelerator.prepare(accel::make_data_loader(Numbers{samples}, options));
  Ids ids;
  Ids steps;
  for (auto& batch : loader) {
    const Ids rows = ids_of(accelerator.gather_for_metrics(batch));
    ids.insert(ids.end(), rows.begin(), rows.end());
    steps.push_back(static_cast<std::int64_t>(rows.size()));
  }
  return {ids, steps};
}

/// rank + 1 rows of this rank's number.
at::Tensor own_rows(c10::ScalarType dtype = at::kLong) {
  return at::full({rank() + 1, 2}, rank(), at::TensorOptions(dtype));
}

struct Result {
  at::Tensor scores;
  std::vector<std::string> names;
  double scale = 1.0;
};
auto accel_fields(Result& result) {
  return std::tie(result.scores, result.names, result.scale);
}

enum class Phase { kOne, kTwo };

}  // namespace

TEST_CASE("case 41: a last step that is full is kept whole") {
  Accelerator accelerator;
  const auto [ids, steps] = evaluated(accelerator, 256 * ranks(), {.batch_size = 16});
  CHECK(ids == first(256 * ranks()));
  CHECK(steps == Ids(16, 16 * ranks()));
}

TEST_CASE("case 42: exactly the rows of the data set are gathered, in order, and no repeats") {
  Accelerator accelerator;
  const auto nine = evaluated(accelerator, 9, {.batch_size = 2});
  CHECK(nine.first == first(9));
  if (ranks() == 2) CHECK(nine.second == Ids{4, 4, 1});
  CHECK(evaluated(accelerator, 100, {.batch_size = 8}).first == first(100));
  CHECK(evaluated(accelerator, 100, {.batch_size = 8, .num_workers = 2}).first == first(100));
}

TEST_CASE("case 43: with drop_last nothing is cut from what is left") {
  Accelerator accelerator;
  const std::int64_t samples = ranks() == 1 ? 9 : 10 * ranks() + 1;
  const auto [ids, steps] = evaluated(accelerator, samples, {.batch_size = 5, .drop_last = true});
  CHECK(ids == first(ranks() == 1 ? 5 : 10 * ranks()));
}

TEST_CASE("case 45: on one rank as on several, the last step has the rows that are left") {
  Accelerator accelerator;
  const auto [ids, steps] = evaluated(accelerator, 8 * ranks() + 2, {.batch_size = 4});
  CHECK(ids == first(8 * ranks() + 2));
  CHECK(steps == Ids{4 * ranks(), 4 * ranks(), 2});
}

TEST_CASE("gather_for_metrics knows batches that rank 0 dealt, split ones, and shuffled ones") {
  Accelerator accelerator;
  for (const std::int64_t samples : {1, 7, 23, 48}) {
    CHECK(evaluated(accelerator, samples, {.batch_size = 3, .dispatch_batches = true}).first == first(samples));
    if (samples > 4 * ranks())
      CHECK(evaluated(accelerator, samples, {.batch_size = ranks(), .split_batches = true}).first == first(samples));
  }
  const auto shuffled = evaluated(accelerator, 50, {.batch_size = 3, .shuffle = true, .seed = 4});
  Ids expected;
  for (auto& batch : accel::make_data_loader(Numbers{50}, {.batch_size = 3, .shuffle = true, .seed = 4}))
    for (const std::int64_t id : ids_of(batch)) expected.push_back(id);
  CHECK(shuffled.first == expected);
}

TEST_CASE("what does not have the rows of the batch is refused on all ranks; outside a loop it is gather") {
  Accelerator accelerator;
  const auto loader = accelerator.prepare(accel::make_data_loader(Numbers{8 * ranks()}, {.batch_size = 4}));
  for (auto& batch : loader) {
    const auto wrong = [&] { (void)accelerator.gather_for_metrics(rank() == 0 ? batch.slice(0, 0, 2) : batch); };
    CHECK(contains(error_text<accel::UsageError>(wrong), "expected the 4 rows of the batch at hand"));
    CHECK(ids_of(accelerator.gather_for_metrics(batch)).size() == static_cast<std::size_t>(4 * ranks()));
  }
  CHECK(accelerator.gather_for_metrics(at::full({}, 1.0)).sizes() == at::IntArrayRef({ranks()}));
}

TEST_CASE("nothing of the repeats is sent") {
  Accelerator accelerator;
  const auto loader = accelerator.prepare(accel::make_data_loader(Numbers{8 * ranks() + 1}, {.batch_size = 8}));
  accel::test::Traffic traffic(accelerator, accel::Purpose::kUser);
  std::vector<std::uint64_t> bytes;
  for (auto& batch : loader) {
    (void)accelerator.gather_for_metrics(batch);
    bytes.push_back(traffic.bytes());
  }
  REQUIRE(bytes.size() == 2);
  const std::uint64_t own = rank() == 0 ? 1 : 0;
  // Beside the rows goes what describes them, which is equally long in both steps.
  CHECK(bytes[0] - bytes[1] == accel::test::sent((8 - own) * sizeof(std::int64_t)));
}

TEST_CASE("gather joins the rows of all ranks, as many as each has") {
  Accelerator accelerator;
  for (const auto dtype : {at::kLong, at::kFloat, at::kHalf, at::kBool}) {
    const at::Tensor all = accelerator.gather(own_rows(dtype));
    CHECK((all.scalar_type() == dtype));
    CHECK(all.size(0) == ranks() * (ranks() + 1) / 2);
    std::int64_t begin = 0;
    for (int each = 0; each < ranks(); ++each) {
      CHECK(at::equal(all.slice(0, begin, begin + each + 1), at::full({each + 1, 2}, each, at::TensorOptions(dtype))));
      begin += each + 1;
    }
  }
  const at::Tensor with_graph = at::full({1}, 1.0).requires_grad_(true);
  CHECK_FALSE(accelerator.gather(with_graph).requires_grad());
}

TEST_CASE("gather of trees: structs, maps, lists of rows; lone numbers must be equal") {
  Accelerator accelerator;
  const auto mine = "of " + std::to_string(rank());
  const Result all = accelerator.gather(Result{own_rows(), std::vector<std::string>(2, mine), 0.5});
  CHECK(all.scores.size(0) == ranks() * (ranks() + 1) / 2);
  CHECK(all.names.size() == 2U * static_cast<std::size_t>(ranks()));
  CHECK(all.names.back() == "of " + std::to_string(ranks() - 1));
  CHECK(all.scale == 0.5);

  const Named named = accelerator.gather(Named{{"ids", at::full({2}, rank())}, {"loss", at::full({}, 1.0)}});
  CHECK(named.at("ids").size(0) == 2 * ranks());
  CHECK(named.at("loss").sizes() == at::IntArrayRef({ranks()}));

  if (ranks() == 1) return;
  const auto numbers = [&] { (void)accelerator.gather(Result{own_rows(), {}, 1.0 * rank()}); };
  CHECK(contains(error_text<accel::UsageError>(numbers), "gather: expected the same structure on all ranks"));
  const auto keys = [&] { (void)accelerator.gather(Named{{rank() == 0 ? "a" : "b", at::ones({1})}}); };
  CHECK(contains(error_text<accel::UsageError>(keys), "'(a: tensor, )' on rank 0"));
  const auto shapes = [&] { (void)accelerator.gather(at::ones({1, rank() + 1})); };
  CHECK_THROWS_AS(shapes(), accel::UsageError);
  CHECK(accelerator.gather(at::ones({1})).size(0) == ranks());  // the group is good
}

TEST_CASE("gather_object and broadcast_object take anything that is a tree") {
  Accelerator accelerator;
  using Object = std::pair<std::string, std::vector<std::optional<double>>>;
  Object mine{std::string(static_cast<std::size_t>(rank()), 'x'), {}};
  mine.second.resize(static_cast<std::size_t>(rank()), 1.5);
  const std::vector<Object> all = accelerator.gather_object(mine);
  REQUIRE(all.size() == static_cast<std::size_t>(ranks()));
  for (std::size_t each = 0; each < all.size(); ++each) {
    CHECK(all[each].first == std::string(each, 'x'));
    CHECK((all[each].second == std::vector<std::optional<double>>(each, 1.5)));
  }
  const int last = ranks() - 1;
  CHECK(accelerator.broadcast_object(mine, last).first.size() == static_cast<std::size_t>(last));
  CHECK(accelerator.broadcast_object(std::string(rank() == 0 ? "" : "not empty")).empty());
  CHECK(accelerator.broadcast_object(Result{own_rows(), {"a"}, 2.0}, last).scores.size(0) == ranks());

  const auto sparse = [&] {
    (void)accelerator.gather_object(rank() == last ? at::ones({2, 2}).to_sparse() : at::ones({1}));
  };
  CHECK(contains(error_text<accel::UsageError>(sparse), "rank " + std::to_string(last) + ": "));
  const auto from = [&] { (void)accelerator.broadcast_object(at::ones({2, 2}).to_sparse()); };
  if (ranks() > 1) CHECK_THROWS_AS(from(), accel::UsageError);
  CHECK(contains(error_text<accel::UsageError>([&] { (void)accelerator.broadcast_object(1, ranks()); }),
                 "expected 0 <= root"));
}

TEST_CASE("reduce combines each tensor and number, and leaves what was given alone") {
  Accelerator accelerator;
  const double sum = ranks() * (ranks() + 1) / 2.0;
  const Named given{{"loss", at::full({2}, rank() + 1.0)}};
  CHECK(accelerator.reduce(given).at("loss")[1].item<double>() == sum);
  CHECK(given.at("loss")[1].item<double>() == rank() + 1.0);
  CHECK(accelerator.reduce(given, accel::ReduceOp::kAvg).at("loss")[0].item<double>() == sum / ranks());
  const auto numbers = accelerator.reduce(std::tuple(rank() + 1, 0.5, std::vector<std::int64_t>{1, rank()}));
  CHECK(std::get<0>(numbers) == static_cast<int>(sum));
  CHECK(std::get<1>(numbers) == 0.5 * ranks());
  CHECK(std::get<2>(numbers) == std::vector<std::int64_t>{ranks(), ranks() * (ranks() - 1) / 2});
  CHECK(accelerator.reduce(std::int64_t{rank()}, accel::ReduceOp::kMax) == ranks() - 1);
  CHECK_THROWS_AS((void)accelerator.reduce(at::full({2}, 1, at::kLong), accel::ReduceOp::kAvg), accel::UsageError);
  if (ranks() == 1) return;
  const auto shapes = [&] { (void)accelerator.reduce(at::ones({rank() + 1})); };
  CHECK(contains(error_text<accel::UsageError>(shapes), "reduce: expected the same structure on all ranks"));
  const auto lengths = [&] { (void)accelerator.reduce(std::vector<double>(static_cast<std::size_t>(rank()), 1.0)); };
  CHECK_THROWS_AS(lengths(), accel::UsageError);
}

TEST_CASE("broadcast gives the tree of one rank to all, in new tensors") {
  Accelerator accelerator;
  const int root = ranks() - 1;
  const at::Tensor given = at::full({3}, rank());
  const auto result = accelerator.broadcast(std::pair(given, std::string(1, static_cast<char>('a' + rank()))), root);
  CHECK(at::equal(result.first, at::full({3}, root)));
  CHECK(result.second == std::string(1, static_cast<char>('a' + root)));
  CHECK(at::equal(given, at::full({3}, rank())));
  CHECK(accelerator.broadcast(rank() == 0 ? Phase::kTwo : Phase::kOne) == Phase::kTwo);
  if (ranks() == 1) return;
  CHECK_THROWS_AS((void)accelerator.broadcast(at::ones({rank() + 1})), accel::UsageError);
}

TEST_CASE("case 48: pad_across_processes keeps the dtype") {
  Accelerator accelerator;
  const std::int64_t columns = 100 * (rank() + 1);
  const at::Tensor mask = at::ones({2, columns}, at::kBool);
  const at::Tensor padded = accelerator.pad_across_processes(mask, {.dim = 1});
  CHECK((padded.scalar_type() == at::kBool));
  CHECK(padded.sizes() == at::IntArrayRef({2, 100 * ranks()}));
  CHECK(padded.sum().item<std::int64_t>() == 2 * columns);
  CHECK(padded.slice(1, 0, columns).all().item<bool>());

  const Named tree = accelerator.pad_across_processes(
      Named{{"ids", at::full({rank() + 1}, 7, at::kLong)}, {"loss", at::full({}, 1.0)}},
      {.pad_index = -100, .pad_first = true});
  CHECK(tree.at("ids").size(0) == ranks());
  CHECK(tree.at("ids")[ranks() - 1].item<std::int64_t>() == 7);
  if (rank() + 1 < ranks()) CHECK(tree.at("ids")[0].item<std::int64_t>() == -100);
  CHECK(tree.at("loss").dim() == 0);
  CHECK(accelerator.pad_across_processes(at::ones({2, rank() + 1}), {.dim = -1}).size(1) == ranks());

  if (ranks() == 1) return;
  const auto dimensions = [&] {
    (void)accelerator.pad_across_processes(rank() == 0 ? at::ones({2}) : at::ones({2, 2}));
  };
  CHECK(contains(error_text<accel::UsageError>(dimensions), "found 1 on rank 0 and 2 on rank 1"));
}

TEST_CASE("case 50: pad_input_tensors pads to the next multiple, and not what is one") {
  CHECK(accel::pad_input_tensors(at::ones({8, 3}), 4).sizes() == at::IntArrayRef({8, 3}));
  const at::Tensor six = accel::pad_input_tensors(at::ones({6, 3}), 4);
  CHECK(six.sizes() == at::IntArrayRef({8, 3}));
  CHECK(six.slice(0, 6, 8).eq(0).all().item<bool>());
  CHECK(accel::pad_input_tensors(at::ones({2, 5}), 2, 1).sizes() == at::IntArrayRef({2, 6}));
  CHECK_THROWS_AS((void)accel::pad_input_tensors(at::ones({8}), 0), accel::UsageError);
}

TEST_CASE("split_between_processes gives each element to one rank, in order, the first ranks one more") {
  Accelerator accelerator;
  for (const std::int64_t length : {0, 1, 5, 8, 13}) {
    const Ids mine = accelerator.split_between_processes(first(length));
    CHECK(accelerator.gather(mine) == first(length));
    const std::int64_t least = length / ranks();
    CHECK(static_cast<std::int64_t>(mine.size()) == least + (rank() < length % ranks() ? 1 : 0));
    const Ids padded = accelerator.split_between_processes(first(length), {.apply_padding = true});
    CHECK(static_cast<std::int64_t>(padded.size()) == (length + ranks() - 1) / ranks());
    if (padded.size() > mine.size()) CHECK(padded.back() == length - 1);

    const at::Tensor rows = accelerator.split_between_processes(at::arange(length));
    CHECK(at::equal(accelerator.gather(rows), at::arange(length)));
  }
  const Named both = accelerator.split_between_processes(Named{{"a", at::arange(5)}, {"b", at::arange(5) * 2}});
  CHECK(at::equal(both.at("a") * 2, both.at("b")));
  CHECK(accelerator.split_between_processes(first(5), [](const Ids& mine) { return mine.size(); }) ==
        static_cast<std::size_t>(5 / ranks() + (rank() < 5 % ranks() ? 1 : 0)));
  const auto different = [&] {
    (void)accelerator.split_between_processes(Named{{"a", at::arange(5)}, {"b", at::arange(4)}});
  };
  CHECK(contains(error_text<accel::UsageError>(different), "expected parts of one length, found 5 and 4"));
}

TEST_CASE("a trigger that one rank sets is seen by all, once") {
  Accelerator accelerator;
  CHECK_FALSE(accelerator.check_trigger());
  if (rank() == ranks() - 1) accelerator.set_trigger();
  CHECK(accelerator.check_trigger());
  CHECK_FALSE(accelerator.check_trigger());
}
