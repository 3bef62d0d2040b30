// Rounds that do not end well: nothing stays armed, nobody hangs, and the next window is exact.
#include "support/probe.hpp"
#include "support/rank_expect.hpp"
#include "support/torch_doctest.hpp"

#include <accel/error.hpp>

#include <ATen/Functions.h>
#include <torch/csrc/autograd/custom_function.h>

#include <stdexcept>

using namespace accel;
using namespace accel::test;

namespace {

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct FailsInBackward : torch::autograd::Function<FailsInBackward> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& input) { return input.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*, torch::autograd::variable_list) {
    throw Failure("cannot go backward here");
  }
};

}  // namespace

TEST_CASE("case 121: a rank that throws in a syncing backward: all drop the window, and the next one is exact") {
  // Before any gradient, between two of them (buckets of one parameter), and after the last.
  for (const int place : {0, 1, 2})
    for (const int failing : {0, ranks() - 1})
      for (const int n : {1, 2}) {
        Accelerator accelerator({.gradient_accumulation_steps = n, .first_bucket_bytes = 4, .bucket_bytes = 4});
        Scalars scalars(3);
        torch::optim::SGD sgd(scalars->parameters(), 1.0);
        auto [model, optimizer] = accelerator.prepare(scalars, sgd);
        Traffic traffic(accelerator);
        const auto loss_of = [&s = scalars](double x) {
          return s->p[0] * x + s->p[1] * (2.0 * x) + s->p[2] * (3.0 * x);
        };
        for (int micro = 1; micro < n; ++micro) {
          const auto guard = accelerator.accumulate(model);
          accelerator.backward(loss_of(1000.0));
        }
        {
          const auto guard = accelerator.accumulate(model);
          const auto backward = [&] {
            // What is later in forward is earlier in backward.
            const at::Tensor begin = rank() == failing && place == 2
                                         ? FailsInBackward::apply(at::zeros({}).requires_grad_(true) * 1.0)
                                         : at::zeros({});
            at::Tensor loss = begin + loss_of(1000.0);
            if (rank() == failing && place == 0) loss = FailsInBackward::apply(loss);
            if (rank() == failing && place == 1) {
              const at::Tensor middle = FailsInBackward::apply(scalars->p[0] * 1000.0);
              loss = middle + scalars->p[2] * 1000.0;
            }
            accelerator.backward(loss);
          };
          if (rank() == failing) {
            CHECK(contains(error_text<Failure>(backward), "cannot go backward here"));
          } else {
            const std::string text = error_text<AbandonedError>(backward);
            CHECK(contains(text, "rank " + std::to_string(failing)));
            CHECK(contains(text, "cannot go backward here"));
          }
          CHECK(optimizer.step() == Stepped::kNo);
          optimizer.zero_grad();
        }
        for (const auto& p : scalars->p) {
          CHECK(p.item<double>() == 0.0);
          CHECK_FALSE(p.grad().defined());
        }
        CHECK(accelerator.pending_micro_batches(model) == 0);
        traffic.take();
        for (int micro = 0; micro < n; ++micro) {
          const auto guard = accelerator.accumulate(model);
          accelerator.backward(loss_of(mine()));
          CHECK(traffic.bytes() == (micro + 1 == n ? sent(12) : 0));
          optimizer.step();
          optimizer.zero_grad();
        }
        for (std::size_t k = 0; k < 3; ++k)
          CHECK(scalars->p[k].item<double>() == -(static_cast<double>(k) + 1.0) * mean_of_ranks());
      }
}

TEST_CASE("case 121: all ranks throw, or several: each sees its own") {
  for (const int every : {1, 2}) {
    Rig rig;
    {
      const auto guard = rig.accelerator.accumulate(rig.probe);
      const auto backward = [&] {
        const at::Tensor loss = rig.probe->loss({1.0});
        rig.accelerator.backward(rank() % every == 0 ? FailsInBackward::apply(loss) : loss);
      };
      if (rank() % every == 0)
        CHECK(contains(error_text<Failure>(backward), "cannot go"));
      else
        CHECK(contains(error_text<AbandonedError>(backward), "rank 0"));
    }
    CHECK(rig.micro({mine()}) == 'S');
    CHECK(rig.probe->value() == -mean_of_ranks());
  }
}

TEST_CASE("a rank that throws in a backward that does not sync: the others do not notice, and its window goes on") {
  Rig rig({.gradient_accumulation_steps = 2}, at::kDouble);
  {
    const auto guard = rig.accelerator.accumulate(rig.probe);
    const auto backward = [&] {
      const at::Tensor loss = rig.probe->loss({mine()});
      rig.accelerator.backward(rank() == 0 ? FailsInBackward::apply(loss) : loss);
    };
    if (rank() == 0) {
      CHECK_THROWS_AS(backward(), Failure);
      guard.skip();  // keeps step with the others
    } else {
      backward();
    }
    CHECK(rig.finish() == '.');
  }
  CHECK(rig.micro({mine()}) == 'S');
  double sum = 0.0;
  for (int r = 0; r < ranks(); ++r) sum += (r == 0 ? 1.0 : 2.0) * one_more(r);
  CHECK(rig.probe->value() == doctest::Approx(-sum / (2.0 * ranks() - 1.0)).epsilon(1e-12));
}

TEST_CASE("case 112: a guarded model that this loss does not reach leaves nothing armed") {
  Accelerator accelerator({.gradient_accumulation_steps = 2});
  Probe a;
  Probe b;
  torch::optim::SGD sgd_a(a->parameters(), 1.0);
  torch::optim::SGD sgd_b(b->parameters(), 1.0);
  auto [ma, mb, oa, ob] = accelerator.prepare(a, b, sgd_a, sgd_b);
  Traffic traffic(accelerator);
  for (int window = 1; window <= 3; ++window) {
    for (int micro = 0; micro < 2; ++micro) {
      const auto guard = accelerator.accumulate(ma, mb);
      // The boundary of the first two windows does not reach b; the first window does not reach it at all.
      const bool reach_b = window == 3 || (window == 2 && micro == 0);
      accelerator.backward(reach_b ? ma->loss({mine()}) + mb->loss({8.0 * mine()}) : ma->loss({mine()}));
      CHECK(traffic.bytes() == (micro == 1 ? sent(8) : 0));
      oa.step();
      ob.step();
      oa.zero_grad();
      ob.zero_grad();
    }
    CHECK(a->value() == -window * mean_of_ranks());
    CHECK(b->value() == (window == 1 ? 0.0 : window == 2 ? -4.0 : -12.0) * mean_of_ranks());
  }
  CHECK(oa.steps() == 3);
}

TEST_CASE("case 113: backward through a freed graph throws, sends nothing later, and the next sync is exact") {
  for (const int n : {1, 2}) {
    Rig rig({.gradient_accumulation_steps = n});
    Traffic traffic(rig.accelerator);
    for (int micro = 1; micro < n; ++micro) rig.micro({1000.0});
    {
      const at::Tensor loss = (rig.probe->w.exp() * 1000.0).mean();
      loss.backward();
      rig.accelerator.discard_window(rig.probe);
      for (int micro = 1; micro < n; ++micro) rig.micro({1000.0});
      const auto guard = rig.accelerator.accumulate(rig.probe);
      CHECK_THROWS_AS(rig.accelerator.backward(loss), c10::Error);
      CHECK(rig.optimizer.step() == Stepped::kNo);
    }
    traffic.take();
    CHECK(rig.probe->value() == 0.0);
    for (int micro = 0; micro < n; ++micro) {
      const char stepped = rig.micro({mine()});
      CHECK(stepped == (micro + 1 == n ? 'S' : '.'));
      CHECK(traffic.bytes() == (micro + 1 == n ? sent(4) : 0));
    }
    CHECK(rig.probe->value() == -mean_of_ranks());
  }
}

TEST_CASE("case 113: backward twice on one graph inside a guard") {
  Rig rig({.gradient_accumulation_steps = 2});
  {
    const auto guard = rig.accelerator.accumulate(rig.probe);
    const at::Tensor loss = (rig.probe->w.exp() * mine()).mean();  // exp saves its result, which backward frees
    rig.accelerator.backward(loss);
    CHECK_THROWS_AS(rig.accelerator.backward(loss), c10::Error);
    CHECK(gradient_of(rig.probe->w) == mine() / 2.0);
  }
  CHECK(rig.micro({mine()}) == 'S');
  CHECK(rig.probe->value() == -mean_of_ranks());
}

TEST_CASE("losses that cannot go backward are refused on all ranks, and the call can be mended") {
  Rig rig;
  const auto text = [&](const at::Tensor& loss, const BackwardOptions& options = {}) {
    return error_text<UsageError>([&] { rig.accelerator.backward(loss, options); });
  };
  const auto guard = rig.accelerator.accumulate(rig.probe);
  const CommStats before = rig.accelerator.comm_stats();
  CHECK(contains(text(at::Tensor()), "undefined"));
  CHECK(contains(text(at::zeros({})), "requires no gradient"));
  CHECK(contains(text(rig.probe->products({1.0, 2.0})), "expected a scalar loss, found shape [2]"));
  CHECK(contains(text(rig.probe->loss({1.0}), {.items = -1}), "found -1"));
  CHECK(contains(text(rig.probe->products({1.0, 2.0}), {.gradient = at::ones({3})}), "[3]"));
  CHECK(contains(error_text<UsageError>([&] { rig.accelerator.backward(std::vector<at::Tensor>()); }), "none"));
  CHECK((rig.accelerator.comm_stats() - before).of(Purpose::kGradient).bytes == 0);
  rig.accelerator.backward(rig.probe->loss({mine()}));
  CHECK(rig.finish() == 'S');
  CHECK(rig.probe->value() == -mean_of_ranks());
}

TEST_CASE(
    "ranks that reduce different models in one sync are told so, all of them, and nothing of a gradient was sent") {
  if (ranks() == 1) return;
  Accelerator accelerator;
  Probe a;
  Probe b;
  accelerator.prepare(a, b);
  Traffic traffic(accelerator);
  {
    const auto guard = accelerator.accumulate(a, b);
    const auto backward = [&] {
      if (rank() == 0)
        accelerator.backward(a->loss({1.0}), {.inputs = {a}});
      else
        accelerator.backward(b->loss({1.0}), {.inputs = {b}});
    };
    const std::string text = error_text<UsageError>(backward);
    CHECK(contains(text, "accel[" + std::to_string(rank()) + "/"));
    CHECK(contains(text, "model 0"));
    CHECK(contains(text, "model 1"));
    CHECK(traffic.bytes() == 0);
  }
  accelerator.discard_window(a);
  accelerator.discard_window(b);
  const auto guard = accelerator.accumulate(a, b);
  accelerator.backward(a->loss({mine()}) + b->loss({2.0 * mine()}));
  CHECK(gradient_of(a->w) == mean_of_ranks());
  CHECK(gradient_of(b->w) == 2.0 * mean_of_ranks());
}

TEST_CASE("ranks that freeze different parameters are told which, all of them") {
  if (ranks() == 1) return;
  Accelerator accelerator;
  Scalars scalars(2);
  accelerator.prepare(scalars);
  scalars->p[1].set_requires_grad(rank() == 0);
  {
    const auto guard = accelerator.accumulate(scalars);
    const std::string text = error_text<UsageError>([&] { accelerator.backward(scalars->p[0] * 1.0); });
    CHECK(contains(text, "p1"));
    CHECK(contains(text, "trainable"));
    CHECK(contains(text, "frozen"));
  }
  accelerator.discard_window(scalars);
  scalars->p[1].set_requires_grad(true);
  const auto guard = accelerator.accumulate(scalars);
  accelerator.backward(scalars->p[0] * mine() + scalars->p[1] * 2.0);
  CHECK(gradient_of(scalars->p[0]) == mean_of_ranks());
  CHECK(gradient_of(scalars->p[1]) == 2.0);
}

TEST_CASE("case 121: a rank whose loss cannot go backward tells the others, and the next window is exact") {
  Rig rig;
  const int failing = ranks() - 1;
  {
    const auto micro = rig.accelerator.accumulate(rig.probe);
    const at::Tensor loss = rig.probe->loss({1000.0});
    if (rank() == failing)
      CHECK_THROWS_AS(rig.accelerator.backward(loss.detach()), UsageError);
    else
      CHECK_THROWS_AS(rig.accelerator.backward(loss), AbandonedError);
    CHECK(rig.optimizer.step() == Stepped::kNo);
  }
  CHECK(!rig.probe->w.grad().defined());
  CHECK(rig.micro({mine()}) == 'S');
  CHECK(rig.probe->value() == -mean_of_ranks());
}

TEST_CASE("a sparse gradient made by hand is refused on its rank, dropped on the others, and nobody waits") {
  Rig rig;
  const int failing = ranks() - 1;
  Scalars scalars(1);
  auto model = rig.accelerator.prepare(scalars);
  scalars->p[0].mutable_grad() = at::full({}, 1.0);
  if (ranks() == 1) return;
  if (rank() == failing) scalars->p[0].mutable_grad() = at::full({}, 1.0).to_sparse();
  if (rank() == failing)
    CHECK_THROWS_AS(rig.accelerator.sync(model), UsageError);
  else
    CHECK_THROWS_AS(rig.accelerator.sync(model), AbandonedError);
  CHECK(rig.micro({mine()}) == 'S');
  CHECK(rig.probe->value() == -mean_of_ranks());
}

TEST_CASE("options that differ between ranks are refused on all of them") {
  if (ranks() == 1) return;  // nobody to differ from
  CHECK_THROWS_AS(Accelerator({.bucket_bytes = 1000 + rank()}), UsageError);
  CHECK_THROWS_AS(
      Accelerator({.tail_policy = rank() == 0 ? TailPolicy::kDivideByConfigured : TailPolicy::kDivideByActual}),
      UsageError);
  // Refused on one rank only: the others learn of it.
  CHECK_THROWS_AS(Accelerator({.gradient_accumulation_steps = rank() == 0 ? 0 : 1}), UsageError);
  Rig rig;
  CHECK(rig.micro({mine()}) == 'S');
  CHECK(rig.probe->value() == -mean_of_ranks());
}
