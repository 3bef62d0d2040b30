// What must hold of a loader whatever its options are, over thousands of drawn ones. The ranks are simulated: a bound
// loader without dispatch_batches communicates with nobody.

#include <accel/data.hpp>
#include <accel/error.hpp>

#include "support/torch_doctest.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

using accel::DataLoader;
using accel::DataLoaderOptions;
using accel::DataLoaderState;

namespace {

using Ids = std::vector<std::size_t>;

constexpr int kConfigurations = 2500;

struct Numbers {
  std::size_t count = 0;
  using BatchType = Ids;
  [[nodiscard]] Ids get_batch(c10::ArrayRef<std::size_t> indices) const { return indices.vec(); }
  [[nodiscard]] std::size_t size() const { return count; }
};

struct Configuration {
  std::size_t samples = 0;
  int ranks = 1;
  DataLoaderOptions options;
  std::int64_t epoch = 0;
  std::size_t resume_after = 0;  ///< steps
  int resume_ranks = 1;
  std::int64_t resume_batch_size = 1;
};

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : engine_(seed) {}
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(engine_() % bound); }
  bool coin() { return below(2) == 1; }

 private:
  std::mt19937_64 engine_;  // its numbers are the same everywhere, those of distributions are not
};

Configuration draw(Draw& draws) {
  Configuration drawn;
  drawn.ranks = 1 + static_cast<int>(draws.below(4));
  drawn.samples = draws.below(8) == 0 ? draws.below(4) : draws.below(70);
  drawn.options.batch_size = 1 + static_cast<std::int64_t>(draws.below(9));
  drawn.options.shuffle = draws.coin();
  drawn.options.seed = draws.below(1000);
  drawn.options.drop_last = draws.below(3) == 0;
  drawn.options.even_batches = draws.coin();
  drawn.options.split_batches = draws.below(3) == 0;
  drawn.options.num_workers = draws.below(4);
  drawn.options.prefetch_factor = 1 + draws.below(3);
  if (drawn.options.split_batches) drawn.options.batch_size *= drawn.ranks;
  drawn.epoch = static_cast<std::int64_t>(draws.below(3));
  drawn.resume_after = draws.below(8);
  drawn.resume_ranks = 1 + static_cast<int>(draws.below(4));
  drawn.resume_batch_size = 1 + static_cast<std::int64_t>(draws.below(9));
  return drawn;
}

std::string text_of(const Configuration& c) {
  const DataLoaderOptions& o = c.options;
  std::ostringstream text;
  text << "samples " << c.samples << ", ranks " << c.ranks << ", batch_size " << o.batch_size << ", shuffle "
       << o.shuffle << ", seed " << o.seed << ", drop_last " << o.drop_last << ", split " << o.split_batches
       << ", even " << o.even_batches << ", workers " << o.num_workers << ", epoch " << c.epoch << ", resumed after "
       << c.resume_after << " steps at " << c.resume_ranks << " ranks";
  return text.str();
}

/// One rank's part of a pass.
struct Part {
  std::vector<Ids> batches;
  std::vector<Ids> own;                 ///< of each batch the rows that are no repeats
  std::vector<DataLoaderState> states;  ///< after each batch
  std::size_t size_before = 0;          ///< size() before the pass and in it
  std::size_t size_within = 0;
};

class Ranks {
 public:
  Ranks(const DataLoader<Ids>& loader, int count) {
    for (int rank = 0; rank < count; ++rank) {
      active_.push_back(std::make_shared<accel::detail::ActiveLoaders>());
      loaders_.push_back(loader.bind({.rank = rank, .size = count, .active = active_.back()}));
    }
  }
  void set_epoch(std::int64_t epoch) const {
    for (const auto& loader : loaders_) loader.set_epoch(epoch);
  }
  void load(const DataLoaderState& state) const {
    for (const auto& loader : loaders_) loader.load_state_dict(state);
  }

  /// At most so many batches of each rank.
  [[nodiscard]] std::vector<Part> pass(std::optional<std::size_t> most = std::nullopt) const {
    std::vector<Part> parts(loaders_.size());
    for (std::size_t rank = 0; rank < loaders_.size(); ++rank) {
      Part& part = parts[rank];
      part.size_within = part.size_before = loaders_[rank].size();
      if (most == std::size_t{0}) continue;
      for (auto& batch : loaders_[rank]) {
        const auto rows = active_[rank]->rows();
        REQUIRE(rows.has_value());
        CHECK(rows->given == static_cast<std::int64_t>(batch.size()));
        part.batches.push_back(batch);
        part.own.emplace_back(batch.begin(), batch.begin() + rows->own);
        part.states.push_back(loaders_[rank].state_dict());
        part.size_within = loaders_[rank].size();
        if (most && part.batches.size() == *most) break;
      }
    }
    return parts;
  }

 private:
  std::vector<std::shared_ptr<accel::detail::ActiveLoaders>> active_;
  std::vector<DataLoader<Ids>> loaders_;
};

/// What gather_for_metrics gives over the pass: the ranks' own rows, step by step.
Ids gathered(const std::vector<Part>& parts) {
  Ids ids;
  for (std::size_t step = 0; step < parts.front().own.size(); ++step)
    for (const Part& part : parts)
      if (step < part.own.size()) ids.insert(ids.end(), part.own[step].begin(), part.own[step].end());
  return ids;
}

std::vector<std::size_t> times_seen(const std::vector<Part>& parts, std::size_t samples) {
  std::vector<std::size_t> times(samples, 0);
  for (const Part& part : parts)
    for (const Ids& batch : part.batches)
      for (const std::size_t id : batch) ++times.at(id);
  return times;
}

Ids all_ids(std::size_t samples) {
  Ids ids(samples);
  std::iota(ids.begin(), ids.end(), std::size_t{0});
  return ids;
}

Ids sorted(Ids ids) {
  std::sort(ids.begin(), ids.end());
  return ids;
}

/// The order of the epoch, as one rank reads it sample by sample.
Ids order_of(const Configuration& c) {
  const auto loader =
      accel::make_data_loader(Numbers{c.samples}, {.shuffle = c.options.shuffle, .seed = c.options.seed});
  loader.set_epoch(c.epoch);
  Ids order;
  for (auto& batch : loader) order.push_back(batch.at(0));
  return order;
}

/// Samples on all ranks that a pass hands out as their own, from `left` samples on.
std::size_t handed_out(std::size_t left, const Configuration& c) {
  const auto ranks = static_cast<std::size_t>(c.ranks);
  const std::size_t each = static_cast<std::size_t>(c.options.batch_size) / (c.options.split_batches ? ranks : 1);
  if (!c.options.drop_last) return left;
  return left / (each * ranks) * each * ranks;
}

bool too_few(const Configuration& c) {
  const auto ranks = static_cast<std::size_t>(c.ranks);
  const std::size_t each = static_cast<std::size_t>(c.options.batch_size) / (c.options.split_batches ? ranks : 1);
  const std::size_t batches = c.options.drop_last ? c.samples / each : (c.samples + each - 1) / each;
  return c.ranks > 1 && c.options.even_batches && c.samples > 0 && batches < ranks;
}

void check_lengths(const std::vector<Part>& parts, const Configuration& c) {
  for (const Part& part : parts) {
    CHECK(part.batches.size() == part.size_before);
    CHECK(part.batches.size() == part.size_within);
    if (c.options.even_batches || c.options.drop_last) CHECK(part.batches.size() == parts.front().batches.size());
    const auto each = static_cast<std::size_t>(c.options.batch_size / (c.options.split_batches ? c.ranks : 1));
    for (const Ids& batch : part.batches) {
      CHECK(batch.size() <= each);
      if (c.options.drop_last || (c.options.even_batches && c.ranks > 1)) CHECK(batch.size() == each);
    }
  }
}

void check_pass(const Configuration& c, const Ids& order) {
  const Ranks all(accel::make_data_loader(Numbers{c.samples}, c.options), c.ranks);
  all.set_epoch(c.epoch);
  const std::vector<Part> parts = all.pass();
  check_lengths(parts, c);
  const std::size_t expected = handed_out(c.samples, c);
  CHECK(gathered(parts) == Ids(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(expected)));

  // Repeats are the samples from the beginning of the order, as many as complete the last step.
  std::vector<std::size_t> times(c.samples, 0);
  std::size_t given = 0;
  for (const Part& part : parts)
    for (const Ids& batch : part.batches) given += batch.size();
  for (std::size_t at = 0; at < given; ++at) ++times.at(order[at % order.size()]);
  CHECK(times_seen(parts, c.samples) == times);
  if (!c.options.drop_last && (!c.options.even_batches || c.ranks == 1)) CHECK(given == c.samples);
}

void check_workers(const Configuration& c) {
  Configuration plain = c;
  plain.options.num_workers = 0;
  const Ranks with(accel::make_data_loader(Numbers{c.samples}, c.options), c.ranks);
  const Ranks without(accel::make_data_loader(Numbers{c.samples}, plain.options), c.ranks);
  for (int pass = 0; pass < 2; ++pass) {  // the epochs follow one another alike
    const auto one = with.pass();
    const auto other = without.pass();
    for (std::size_t rank = 0; rank < one.size(); ++rank) {
      CHECK(one[rank].batches == other[rank].batches);
      CHECK((one[rank].states == other[rank].states));
    }
  }
}

// Left after some steps and gone on with, on the same ranks and on other ones.
void check_resume(const Configuration& c, const Ids& order) {
  const Ranks before(accel::make_data_loader(Numbers{c.samples}, c.options), c.ranks);
  before.set_epoch(c.epoch);
  const std::vector<Part> first = before.pass(c.resume_after);
  const std::size_t steps = std::min(c.resume_after, first.front().states.size());
  if (steps == 0 || steps == first.front().size_before) return;  // nothing was interrupted
  const DataLoaderState state = first.front().states.at(steps - 1);
  for (const Part& part : first)
    if (part.states.size() >= steps) CHECK(part.states.at(steps - 1) == state);

  const Ids seen = gathered(first);
  REQUIRE(state.samples == static_cast<std::int64_t>(seen.size()));

  const Ranks same(accel::make_data_loader(Numbers{c.samples}, c.options), c.ranks);
  const Ranks reference(accel::make_data_loader(Numbers{c.samples}, c.options), c.ranks);
  reference.set_epoch(c.epoch);
  const auto whole = reference.pass();
  same.load(state);
  const auto rest = same.pass();
  for (std::size_t rank = 0; rank < whole.size(); ++rank)
    CHECK(rest[rank].own == std::vector<Ids>(whole[rank].own.begin() +
                                                 static_cast<std::ptrdiff_t>(std::min(steps, whole[rank].own.size())),
                                             whole[rank].own.end()));

  Configuration other = c;
  other.ranks = c.resume_ranks;
  other.options.batch_size = c.resume_batch_size;
  other.options.split_batches = false;
  other.options.even_batches = false;
  const Ranks elsewhere(accel::make_data_loader(Numbers{c.samples}, other.options), other.ranks);
  elsewhere.load(state);
  const std::size_t more = handed_out(c.samples - seen.size(), other);
  const auto begin = order.begin() + static_cast<std::ptrdiff_t>(seen.size());
  CHECK(gathered(elsewhere.pass()) == Ids(begin, begin + static_cast<std::ptrdiff_t>(more)));
}

}  // namespace

TEST_CASE("whatever the options: each sample once or the documented repeats, in one order, from any point") {
  Draw draws(20240607);
  int checked = 0;
  int refused = 0;
  for (int drawn = 0; checked < kConfigurations; ++drawn) {
    REQUIRE(drawn < 2 * kConfigurations);
    const Configuration c = draw(draws);
    const std::string text = text_of(c);
    CAPTURE(text);
    if (too_few(c)) {
      CHECK_THROWS_AS(Ranks(accel::make_data_loader(Numbers{c.samples}, c.options), c.ranks), accel::UsageError);
      ++refused;
      continue;
    }
    const Ids order = order_of(c);
    CHECK(sorted(order) == all_ids(c.samples));
    check_pass(c, order);
    check_workers(c);
    check_resume(c, order);
    ++checked;
  }
  MESSAGE(checked, " configurations checked, ", refused, " refused as too small");
  CHECK(refused > 0);
}
