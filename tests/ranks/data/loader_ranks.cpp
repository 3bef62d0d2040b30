// Loaders as the accelerator binds them: shards, ends of loops, and windows that follow them.

#include <accel/accelerator.hpp>
#include <accel/digits.hpp>
#include <accel/error.hpp>

#include "support/probe.hpp"
#include "support/rank_expect.hpp"
#include "support/torch_doctest.hpp"

#include <torch/data/example.h>

#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

using accel::Accelerator;
using accel::test::ranks;
using accel::test::Rig;
using accel::test::Values;

namespace {

Values numbers(std::size_t count) {
  Values values{std::vector<double>(count)};
  std::iota(values.x.begin(), values.x.end(), 0.0);
  return values;
}

auto batches_for_all(std::size_t each) {
  return accel::make_data_loader(numbers(each * static_cast<std::size_t>(ranks())));
}

// How often each sample was read, over all ranks. Collective.
template <class Loader>
std::vector<std::int64_t> times_read(const Loader& loader, const Accelerator& accelerator) {
  at::Tensor counts = at::zeros({static_cast<std::int64_t>(loader.samples())}, at::kLong);
  for (auto& batch : loader)
    for (const double sample : batch) counts[static_cast<std::int64_t>(sample)] += 1;
  accel::all_reduce(counts, accel::ReduceOp::kSum, accelerator.group());
  return {counts.const_data_ptr<std::int64_t>(), counts.const_data_ptr<std::int64_t>() + counts.numel()};
}

template <class Loader, class Between>
std::string train(Rig& rig, const Loader& loader, Between between) {
  std::string pattern;
  int index = 0;
  for (auto& batch : loader) {
    pattern += rig.micro(batch);
    between(++index);
  }
  return pattern;
}

constexpr auto kNothing = [](int) {};

}  // namespace

TEST_CASE("without even_batches all ranks together read each sample once, however many there are") {
  Accelerator accelerator;
  for (const std::size_t samples : {1, 2, 3, 9, 16, 31}) {
    const auto loader = accelerator.prepare(accel::make_data_loader(
        numbers(samples), {.batch_size = 2, .shuffle = true, .seed = 5, .even_batches = false}));
    CHECK(times_read(loader, accelerator) == std::vector<std::int64_t>(samples, 1));
  }
}

TEST_CASE("with even_batches all ranks get equally many full batches, and every sample is read") {
  Accelerator accelerator;
  const auto loader = accelerator.prepare(accel::make_data_loader(numbers(31), {.batch_size = 2, .shuffle = true}));
  const auto counts = times_read(loader, accelerator);
  std::int64_t sum = 0;
  for (const std::int64_t count : counts) {
    CHECK(count >= 1);
    sum += count;
  }
  const std::int64_t steps = (16 + ranks() - 1) / ranks();
  CHECK(loader.size() == static_cast<std::size_t>(steps));
  CHECK(sum == (ranks() == 1 ? 31 : 2 * steps * ranks()));
}

TEST_CASE("the digits of all ranks are those of one, each once") {
  Accelerator accelerator;
  const accel::Digits digits(accel::DigitsSplit::kTest);
  const auto loader = accelerator.prepare(accel::make_data_loader(digits, {.batch_size = 64, .even_batches = false}));
  at::Tensor counts = at::zeros({10}, at::kLong);
  for (auto& batch : loader) counts += batch.target.to(at::kCPU).bincount({}, 10);
  accel::all_reduce(counts, accel::ReduceOp::kSum, accelerator.group());
  CHECK(counts.eq(100).all().item<bool>());
}

TEST_CASE("case 7: a whole evaluation pass inside training leaves the windows alone") {
  Rig rig({.gradient_accumulation_steps = 4});
  const auto train_loader = rig.accelerator.prepare(batches_for_all(8));
  const auto eval_loader = rig.accelerator.prepare(batches_for_all(5));
  CHECK(train(rig, train_loader, [&](int index) {
          if (index != 2) return;
          for (auto& batch : eval_loader) (void)rig.probe->loss(batch);
          CHECK_FALSE(rig.accelerator.sync_gradients());
        }) == "...S...S");
}

TEST_CASE("case 8: breaking out of an evaluation loader, also on its last batch, leaves the windows alone") {
  for (const int stop : {2, 5}) {
    Rig rig({.gradient_accumulation_steps = 4});
    const auto train_loader = rig.accelerator.prepare(batches_for_all(7));
    const auto eval_loader = rig.accelerator.prepare(batches_for_all(5));
    const auto evaluate = [&](int index) {
      if (index != 2) return;
      int seen = 0;
      for ([[maybe_unused]] auto& batch : eval_loader)
        if (++seen == stop) break;
    };
    // The training loader's own end is still seen: the last window is short.
    CHECK(train(rig, train_loader, evaluate) == "...S..S");
    CHECK(train(rig, train_loader, evaluate) == "...S..S");
  }
}

TEST_CASE("an exception that leaves a loader is forgotten with it") {
  Rig rig({.gradient_accumulation_steps = 4});
  const auto eval_loader = rig.accelerator.prepare(batches_for_all(1));
  const auto evaluate = [&] {
    for ([[maybe_unused]] auto& batch : eval_loader) throw std::runtime_error("metric");
  };
  CHECK_THROWS_WITH(evaluate(), "metric");
  CHECK(train(rig, rig.accelerator.prepare(batches_for_all(6)), kNothing) == "...S.S");
}

TEST_CASE("case 6: windows end with the loader, or carry over where that is turned off") {
  Rig closing({.gradient_accumulation_steps = 4});
  const auto loader = closing.accelerator.prepare(batches_for_all(7));
  CHECK(train(closing, loader, kNothing) == "...S..S");
  CHECK(train(closing, loader, kNothing) == "...S..S");

  Rig carrying({.gradient_accumulation_steps = 4, .sync_with_dataloader = false});
  const auto same = carrying.accelerator.prepare(batches_for_all(7));
  CHECK(train(carrying, same, kNothing) == "...S...");
  CHECK(train(carrying, same, kNothing) == "S...S..");
  CHECK(carrying.accelerator.pending_micro_batches(carrying.probe) == 2);
  carrying.accelerator.discard_window(carrying.probe);
}

TEST_CASE("case 9: a loader that accel does not know ends no window, a prepared foreign one does") {
  Rig rig({.gradient_accumulation_steps = 4});
  const std::vector<std::vector<double>> batches(6, {1.0});
  CHECK(train(rig, batches, kNothing) == "...S..");
  CHECK(rig.accelerator.pending_micro_batches(rig.probe) == 2);
  rig.accelerator.finish_window(rig.probe);
  CHECK(rig.finish() == 'S');

  const auto prepared = rig.accelerator.prepare_loader(batches, {.already_sharded = true});
  CHECK(train(rig, prepared, kNothing) == "...S.S");
  int left = 6;
  const auto pulled = rig.accelerator.prepare_loader(
      accel::pull([&] { return left-- > 0 ? std::optional(std::vector<double>{1.0}) : std::nullopt; }),
      {.already_sharded = true});
  CHECK(train(rig, pulled, kNothing) == "...S.S");
}

TEST_CASE("case 30: at several ranks a foreign loader must be declared sharded, and is then read whole") {
  Accelerator accelerator;
  const std::vector<std::vector<double>> batches(6, {1.0});
  if (ranks() > 1) {
    const auto text = accel::test::error_text<accel::UsageError>([&] { (void)accelerator.prepare_loader(batches); });
    CHECK(accel::test::contains(text, "prepare_loader: expected a loader that accel can shard"));
  }
  int seen = 0;
  for ([[maybe_unused]] auto& batch : accelerator.prepare_loader(batches, {.already_sharded = true})) ++seen;
  CHECK(seen == 6);
}

TEST_CASE("more ranks than batches is an error on every rank") {
  Accelerator accelerator;
  if (ranks() == 1) return;
  const auto loader = accel::make_data_loader(numbers(2), {.batch_size = 2});
  const auto text = accel::test::error_text<accel::UsageError>([&] { (void)accelerator.prepare(loader); });
  CHECK(accel::test::contains(text, "expected at least " + std::to_string(ranks()) + " batches, one a rank, found 1"));
}

TEST_CASE("case 40: an empty loader yields nothing and leaves sync_gradients as it was") {
  Rig rig({.gradient_accumulation_steps = 2});
  const auto empty = rig.accelerator.prepare(accel::make_data_loader(numbers(0)));
  CHECK(rig.micro({1.0}) == '.');
  CHECK(train(rig, empty, kNothing).empty());
  CHECK_FALSE(rig.accelerator.sync_gradients());
  CHECK(rig.micro({1.0}) == 'S');
}
