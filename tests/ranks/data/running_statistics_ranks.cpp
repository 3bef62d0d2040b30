// Statistics of all samples of all ranks, each once.
#include "support/rank_expect.hpp"
#include "support/torch_doctest.hpp"

#include <accel/error.hpp>
#include <accel/running_statistics.hpp>

#include <ATen/ATen.h>
#include <torch/serialize.h>

#include <cmath>
#include <sstream>

using namespace accel;
using namespace accel::test;

namespace {

/// The same numbers on every rank, far from 0, where sums of squares alone would lose them.
at::Tensor all_samples() {
  at::manual_seed(5);
  return at::randn({64, 3}, at::kDouble) + 1e6;
}

bool near(const at::Tensor& a, const at::Tensor& b) {
  return at::allclose(a, b, 1e-12, 1e-10);
}

}  // namespace

TEST_CASE("exact numbers of a few samples, merged over ranks") {
  RunningStatistics statistics;
  CHECK(statistics.mean().item<double>() == 0.0);
  CHECK(statistics.variance().item<double>() == 1.0);
  statistics.update(at::tensor({mine(), mine() + 2.0}));  // 1 3, 2 4, 3 5, 4 6
  CHECK(statistics.count() == 0);
  CHECK(statistics.pending() == 2);
  CHECK(statistics.mean().item<double>() == 0.0);
  statistics.merge();
  CHECK(statistics.count() == 2 * ranks());
  CHECK(statistics.pending() == 0);
  CHECK(statistics.mean().item<double>() == mean_of_ranks() + 1.0);
  double squares = 0.0;
  for (int each = 0; each < ranks(); ++each)
    for (const double x : {one_more(each), one_more(each) + 2.0}) squares += std::pow(x - mean_of_ranks() - 1.0, 2);
  CHECK(statistics.variance().item<double>() == doctest::Approx(squares / (2 * ranks())).epsilon(1e-14));
}

TEST_CASE("however samples are dealt and however often ranks merge, statistics are those of one process") {
  const at::Tensor all = all_samples();
  for (const int merges : {1, 2, 8}) {
    INFO("merges ", merges);
    RunningStatistics statistics({3});
    for (int part = 0; part < merges; ++part) {
      const auto rows = 64 / merges;
      for (int row = part * rows; row < (part + 1) * rows; ++row)
        if (row % ranks() == rank()) statistics.update(all[row].unsqueeze(0));
      statistics.merge();
      CHECK(same_on_all_ranks(statistics.mean()));
      CHECK(same_on_all_ranks(statistics.variance()));
    }
    CHECK(statistics.count() == 64);
    CHECK(near(statistics.mean(), all.mean(0)));
    CHECK(near(statistics.variance(), all.var(0, false)));
    const at::Tensor normal = statistics.normalize(all, 0.0);
    // A million has an accuracy of 1e-10 in float64.
    CHECK(at::allclose(normal.mean(0), at::zeros({3}, at::kDouble), 0.0, 1e-9));
    CHECK(at::allclose(normal.var(0, false), at::ones({3}, at::kDouble), 0.0, 1e-9));
  }
}

TEST_CASE("ranks with many samples, few and none; merging with nothing changes nothing") {
  const at::Tensor all = all_samples();
  RunningStatistics statistics({3});
  // Rank 0 has none (unless it is alone), the others what is left, in shares of growing size.
  if (ranks() == 1) {
    statistics.update(all);
  } else {
    const std::int64_t share = 64 / (ranks() - 1);
    const std::int64_t first = (rank() - 1) * share;
    const std::int64_t last = rank() + 1 == ranks() ? 64 : first + share;
    statistics.update(rank() == 0 ? all.narrow(0, 0, 0) : all.narrow(0, first, last - first));
  }
  statistics.merge();
  CHECK(statistics.count() == 64);
  CHECK(near(statistics.mean(), all.mean(0)));
  CHECK(near(statistics.variance(), all.var(0, false)));
  const at::Tensor mean = statistics.mean();
  statistics.merge();
  CHECK(at::equal(statistics.mean(), mean));
  CHECK(statistics.count() == 64);
}

TEST_CASE("normalize: dtype, clip, and before the first sample nothing") {
  RunningStatistics statistics({2});
  const at::Tensor x = at::full({5, 2}, 3.0, at::kFloat);
  CHECK(at::equal(statistics.normalize(x), x));
  statistics.update(at::tensor({-1.0, 10.0, 1.0, 14.0}).view({2, 2}));
  statistics.merge(Group());
  const at::Tensor normal = statistics.normalize(x, 0.0);
  CHECK((normal.scalar_type() == at::kFloat));
  CHECK(normal[0][0].item<float>() == 3.0F);
  CHECK(normal[0][1].item<float>() == -4.5F);
  CHECK(statistics.normalize(x, 0.0, 4.0)[0][1].item<float>() == -4.0F);
  CHECK(statistics.standard_deviation()[1].item<double>() == 2.0);
}

TEST_CASE("bad samples are refused before they spoil anything") {
  RunningStatistics statistics({2});
  CHECK(contains(error_text<UsageError>([&] { statistics.update(at::zeros({2})); }), "use unsqueeze(0)"));
  CHECK(contains(error_text<UsageError>([&] { statistics.update(at::zeros({4, 3})); }), "found [4, 3]"));
  CHECK(contains(error_text<UsageError>([&] { statistics.update(at::Tensor()); }), "undefined"));
  CHECK(contains(error_text<UsageError>([&] { statistics.update(at::zeros({4, 2}, at::kComplexFloat)); }), "real"));
  at::Tensor bad = at::zeros({4, 2});
  bad[2][1] = NAN;
  CHECK(contains(error_text<UsageError>([&] { statistics.update(bad); }), "in row 2"));
  CHECK(contains(error_text<UsageError>([&] { (void)statistics.normalize(at::zeros({4, 3})); }), "[2]"));
  CHECK(contains(error_text<UsageError>([&] { (void)statistics.normalize(at::zeros({2}, at::kInt)); }), "floating"));
  CHECK(contains(error_text<UsageError>([&] { RunningStatistics({-1}); }), "sizes of 0 or more"));
  CHECK(statistics.pending() == 0);
}

TEST_CASE("shapes that differ are told on all ranks, also where they hold equally many numbers") {
  if (ranks() == 1) return;
  for (const std::vector<std::int64_t>& other : {std::vector<std::int64_t>{3}, {3, 2}, {6}}) {
    RunningStatistics statistics(rank() == 1 ? other : std::vector<std::int64_t>{2, 3});
    const std::string text = error_text<UsageError>([&] { statistics.merge(); });
    CHECK(
        contains(text, "RunningStatistics.merge: expected samples of one shape on all ranks, found [2, 3] on rank 0"));
    CHECK(contains(text, "running_statistics_ranks.cpp:"));
  }
  barrier();
}

TEST_CASE("a copy is apart from what it was copied from") {
  std::vector<RunningStatistics> agents(3, RunningStatistics({1}));
  agents[0].update(at::full({2, 1}, 4.0));
  agents[0].merge();
  const RunningStatistics before = agents[0];
  agents[0].update(at::full({6, 1}, 8.0));
  agents[0].merge();
  CHECK(agents[1].mean().item<double>() == 0.0);
  CHECK(agents[1].pending() == 0);
  CHECK(before.mean().item<double>() == 4.0);
  CHECK(before.count() == 2 * ranks());
  CHECK(agents[0].mean().item<double>() == 7.0);
}

TEST_CASE("torch::save and torch::load: one rank's archive is that of all") {
  RunningStatistics statistics({1});
  statistics.update(at::full({1, 1}, mine()));
  std::stringstream too_early;
  CHECK(contains(error_text<UsageError>([&] { torch::save(statistics, too_early); }), "call merge() on all ranks"));
  statistics.merge();
  std::stringstream archive;
  torch::save(statistics, archive);
  RunningStatistics loaded({1});
  loaded.update(at::full({1, 1}, 100.0));
  torch::load(loaded, archive);
  CHECK(loaded.count() == ranks());
  CHECK(loaded.pending() == 0);
  CHECK(loaded.mean().item<double>() == mean_of_ranks());
  for (RunningStatistics* each : {&statistics, &loaded}) {
    each->update(at::full({1, 1}, 10.0));
    each->merge();
    CHECK(each->count() == 2 * ranks());
  }
  CHECK(at::equal(loaded.mean(), statistics.mean()));
  std::stringstream again;
  torch::save(statistics, again);
  RunningStatistics wide({2});
  CHECK(contains(error_text<UsageError>([&] { torch::load(wide, again); }), "of shape [2], found [1]"));
}
