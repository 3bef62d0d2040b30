// Calls that are wrong: each gives its named error on every rank that can know, nobody hangs, and the next call is
// good.
#include "support/probe.hpp"
#include "support/rank_expect.hpp"
#include "support/torch_doctest.hpp"

#include <accel/error.hpp>

#include <ATen/Functions.h>

#include <functional>

using namespace accel;
using namespace accel::test;

namespace {

/// How every error text begins: `accel[rank/size] call:`.
std::string site(const std::string& call) {
  return "accel[" + std::to_string(rank()) + "/" + std::to_string(ranks()) + "] " + call + ":";
}

/// A model whose tensors a test chooses.
struct Free : torch::nn::Module {
  using torch::nn::Module::register_buffer;
  using torch::nn::Module::register_parameter;
};

using Build = std::function<void(Free&, bool)>;

/// The error of preparing a model that is built otherwise on the last rank; it names rank 0, that rank, and both lines.
void check_disagreement(const Build& build, const std::string& usual, const std::string& other) {
  Accelerator accelerator;
  Free model;
  build(model, rank() == ranks() - 1 && ranks() > 1);
  if (ranks() == 1) {
    accelerator.prepare(model);
    return;
  }
  const std::string text = error_text<UsageError>([&] { accelerator.prepare(model); });
  CAPTURE(text);
  CHECK(text.find(site("prepare")) == 0);
  CHECK(contains(text, usual));
  CHECK(contains(text, other));
  CHECK(contains(text, "rank 0"));
  CHECK(contains(text, "rank " + std::to_string(ranks() - 1)));
  const std::string direct = error_text<UsageError>([&] { broadcast_parameters(model); });
  CHECK(direct.find(site("broadcast_parameters")) == 0);
  CHECK(contains(direct, usual));
  Probe good;
  accelerator.prepare(good);  // the group is still good
  accelerator.wait_for_everyone();
}

}  // namespace

TEST_CASE("a model that was not prepared is refused in accumulate and everywhere else") {
  Accelerator accelerator;
  Probe prepared;
  accelerator.prepare(prepared);
  Probe other;
  const auto refused = [&](const std::string& call, const std::function<void()>& run) {
    const std::string text = error_text<UsageError>(run);
    CAPTURE(text);
    CHECK(text.find(site(call)) == 0);
    CHECK(contains(text, "prepare(model)"));
  };
  refused("accumulate", [&] { (void)accelerator.accumulate(other); });
  refused("accumulate", [&] { (void)accelerator.accumulate(prepared, other); });
  refused("no_sync", [&] { (void)accelerator.no_sync(other); });
  refused("sync", [&] { accelerator.sync(other); });
  refused("finish_window", [&] { accelerator.finish_window(other); });
  refused("discard_window", [&] { accelerator.discard_window(other); });
  refused("zero_grad", [&] { accelerator.zero_grad(other); });
  refused("refresh", [&] { accelerator.refresh(other); });
  refused("pending_micro_batches", [&] { (void)accelerator.pending_micro_batches(other); });
  {
    const auto guard = accelerator.accumulate(prepared);
    refused("backward", [&] { accelerator.backward(other->loss({1.0}), {.inputs = {other}}); });
  }
  CHECK(contains(error_text<UsageError>([&] { (void)accelerator.accumulate(std::vector<ModelRef>{}); }), "found none"));
}

TEST_CASE("an accelerator without a model has nothing to go backward for") {
  Accelerator accelerator;
  Probe probe;
  CHECK(contains(error_text<UsageError>([&] { accelerator.backward(probe->loss({1.0})); }), "prepare(model)"));
}

TEST_CASE("a second guard on one model is refused, and the first one is still good") {
  Rig rig({.gradient_accumulation_steps = 2});
  Probe other;
  rig.accelerator.prepare(other);
  for (int micro = 0; micro < 2; ++micro) {
    const auto guard = rig.accelerator.accumulate(rig.probe);
    const std::string text = error_text<UsageError>([&] { (void)rig.accelerator.accumulate(rig.probe); });
    CHECK(text.find(site("accumulate")) == 0);
    CHECK(contains(text, "open guard"));
    CHECK_THROWS_AS((void)rig.accelerator.accumulate(other, rig.probe), UsageError);
    rig.accelerator.backward(rig.probe->loss({3.0}));
    CHECK(rig.finish() == (micro == 1 ? 'S' : '.'));
  }
  CHECK(rig.probe->value() == -3.0);
  { const auto guard = rig.accelerator.accumulate(other); }  // no guard was left open on it
}

TEST_CASE("one model named twice in a guard is one model") {
  Rig rig({.gradient_accumulation_steps = 2});
  for (int micro = 0; micro < 2; ++micro) {
    const auto guard = rig.accelerator.accumulate(rig.probe, rig.probe);
    rig.accelerator.backward(rig.probe->loss({3.0}));
    CHECK(rig.finish() == (micro == 1 ? 'S' : '.'));
  }
  CHECK(rig.probe->value() == -3.0);
}

TEST_CASE("a gradient_accumulation_steps below one is refused on every rank") {
  for (const std::int64_t steps : {std::int64_t{0}, std::int64_t{-1}}) {
    const std::string text =
        error_text<UsageError>([&] { const Accelerator accelerator({.gradient_accumulation_steps = steps}); });
    CHECK(text.find(site("Accelerator")) == 0);
    CHECK(contains(text, "gradient_accumulation_steps >= 1, found " + std::to_string(steps)));
  }
  Rig rig;
  CHECK(contains(error_text<UsageError>([&] { rig.accelerator.set_gradient_accumulation_steps(-2); }), "found -2"));
  CHECK(rig.micro({2.0}) == 'S');
}

TEST_CASE("a gradient_accumulation_steps that differs between ranks is told at the first sync") {
  if (ranks() == 1) return;
  Rig rig;
  rig.accelerator.set_gradient_accumulation_steps(rank() == 0 ? 2 : 1);
  {
    const auto guard = rig.accelerator.accumulate(rig.probe, {.last = true});
    const std::string text = error_text<UsageError>([&] { rig.accelerator.backward(rig.probe->loss({1.0})); });
    CHECK(text.find(site("backward")) == 0);
    CHECK(contains(text, "gradient_accumulation_steps 2"));
    CHECK(contains(text, "gradient_accumulation_steps 1"));
    CHECK(contains(text, "(misuse_ranks.cpp:"));
    CHECK(contains(text, "model 0 (w, ...)"));
  }
  rig.accelerator.discard_window(rig.probe);
  CHECK(rig.probe->value() == 0.0);
}

TEST_CASE("models that differ between ranks are refused at prepare: shape") {
  check_disagreement(
      [](Free& model, bool odd) {
        model.register_parameter("w", at::zeros({2, odd ? 4 : 3}));
      },
      "w [2, 3]", "w [2, 4]");
}
TEST_CASE("models that differ between ranks are refused at prepare: name") {
  check_disagreement([](Free& model, bool odd) { model.register_parameter(odd ? "v" : "w", at::zeros({2})); },
                     "parameter w [2]", "parameter v [2]");
}
TEST_CASE("models that differ between ranks are refused at prepare: dtype") {
  check_disagreement(
      [](Free& model, bool odd) { model.register_parameter("w", at::zeros({2}, odd ? at::kDouble : at::kFloat)); },
      "w [2] Float", "w [2] Double");
}
TEST_CASE("models that differ between ranks are refused at prepare: number of parameters, more or fewer") {
  const auto one = [](Free& model) { model.register_parameter("a", at::zeros({2})); };
  const auto two = [](Free& model) { model.register_parameter("b", at::zeros({2})); };
  check_disagreement(
      [&](Free& model, bool odd) {
        one(model);
        if (!odd) two(model);
      },
      "parameter b [2]", "(nothing)");
  check_disagreement(
      [&](Free& model, bool odd) {
        one(model);
        if (odd) two(model);
      },
      "(nothing)", "parameter b [2]");
}
TEST_CASE("models that differ between ranks are refused at prepare: requires_grad") {
  check_disagreement([](Free& model, bool odd) { model.register_parameter("w", at::zeros({2}), !odd); },
                     "w [2] Float trainable", "w [2] Float frozen");
}
TEST_CASE("models that differ between ranks are refused at prepare: buffers") {
  check_disagreement([](Free& model, bool odd) { model.register_buffer("mean", at::zeros({odd ? 5 : 6})); },
                     "buffer mean [6]", "buffer mean [5]");
}

TEST_CASE("a device that is not there is refused on every rank") {
  const auto text = [](c10::Device device) {
    return error_text<UsageError>([&] { const Accelerator accelerator({.device = device}); });
  };
  CHECK(contains(text(c10::Device(c10::kCUDA, 99)), "accel["));
  CHECK(contains(text(c10::Device(c10::kCUDA, 99)), "CUDA"));
  if (!at::hasCUDA()) CHECK(contains(text(c10::Device(c10::kCUDA)), "CUDA"));
  Rig rig({.device = c10::Device(c10::kCPU)});
  CHECK(rig.micro({1.0}) == 'S');
}

TEST_CASE("a loader of another library has to be declared sharded where there are several ranks") {
  Rig rig({.gradient_accumulation_steps = 2});
  const std::vector<std::vector<double>> batches(3, std::vector<double>{2.0});
  const auto undeclared = [&] { (void)rig.accelerator.prepare_loader(batches); };
  if (ranks() == 1) {
    undeclared();
  } else {
    const std::string text = error_text<UsageError>(undeclared);
    CHECK(contains(text, "accel[" + std::to_string(rank()) + "/"));
    CHECK(contains(text, "already_sharded"));
  }
  std::string pattern;
  for (auto& batch : rig.accelerator.prepare_loader(batches, {.already_sharded = true})) pattern += rig.micro(batch);
  CHECK(pattern == ".SS");
  CHECK(rig.probe->value() == -4.0);
}

TEST_CASE("data with fewer batches than ranks is refused on every rank, with both numbers") {
  Accelerator accelerator;
  const auto loader = make_data_loader(Values{std::vector<double>(3, 1.0)}, {.batch_size = 3});
  if (ranks() == 1) {
    CHECK(accelerator.prepare(loader).size() == 1);
    return;
  }
  const std::string text = error_text<UsageError>([&] { (void)accelerator.prepare(loader); });
  CHECK(text.find(site("prepare")) == 0);
  CHECK(contains(text, "at least " + std::to_string(ranks()) + " batches"));
  CHECK(contains(text, "found 1"));
}

TEST_CASE("sparse gradients that only show in backward are refused by name") {
  Accelerator accelerator;
  const at::Tensor table = at::zeros({4, 2}).requires_grad_(true);
  const auto list = parameters({{"table", table}});
  accelerator.prepare(list);
  if (ranks() == 1) return;  // nothing is reduced, and optimizers know what to do with them
  const auto guard = accelerator.accumulate(list);
  const at::Tensor rows = at::embedding(table, at::tensor({1, 2}), -1, false, /*sparse=*/true);
  const std::string text = error_text<UsageError>([&] { accelerator.backward(rows.sum()); });
  CHECK(contains(text, "'table'"));
  CHECK(contains(text, "sparse"));
}
