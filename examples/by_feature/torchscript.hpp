#pragma once

// A reader of digits: a TorchScript backbone, as a file from Python or C++ brings it, and a new head of torch::nn.

#include "common.hpp"

#include <accel/digits.hpp>

#include <torch/script.h>

#include <memory>
#include <sstream>

namespace torchscript {

struct Options {
  example::Flags flags = {};
  std::string backbone = {};
  std::string save_backbone = {};
};

inline Options read_options(int argc, char** argv, example::Twin twin) {
  Options options;
  options.flags = example::read_flags(
      argc, argv, "Trains a TorchScript backbone and a new head together.", twin, {.steps = 600, .batch_size = 64},
      [&](CLI::App& app) {
        app.add_option("--backbone", options.backbone,
                       "TorchScript file: images [N, 1, 28, 28] in, features [N, K] out; none: it is made here")
            ->check(CLI::ExistingFile);
        app.add_option("--save-backbone", options.save_backbone,
                       "file for the trained backbone; the head goes to the same name with .head");
      });
  return options;
}

/// A backbone for programs that were given none: two convolutions whose code is text.
inline torch::jit::Module make_backbone() {
  torch::jit::Module made("Backbone");
  const auto add = [&](const char* name, at::IntArrayRef sizes) {
    made.register_parameter(name, torch::nn::init::kaiming_uniform_(torch::empty(sizes), std::sqrt(5.0)), false);
    made.attr(name).toTensor().set_requires_grad(true);
  };
  add("filters_1", {8, 1, 3, 3});
  add("filters_2", {16, 8, 3, 3});
  made.define(R"(
    def forward(self, x):
        x = torch.tanh(torch.conv2d(x, self.filters_1, None, [2, 2], [1, 1]))
        x = torch.tanh(torch.conv2d(x, self.filters_2, None, [2, 2], [1, 1]))
        return torch.flatten(x, 1)
  )");
  // Through a file, so that what is trained is always what torch::jit::load gives.
  std::stringstream file;
  made.save(file);
  return torch::jit::load(file);
}

inline torch::jit::Module load_backbone(const Options& options) {
  return options.backbone.empty() ? make_backbone() : torch::jit::load(options.backbone);
}

inline torch::Tensor features(torch::jit::Module& backbone, const torch::Tensor& images) {
  return backbone.forward({images}).toTensor();
}

/// A head for as many features as the backbone gives.
inline torch::nn::Linear make_head(torch::jit::Module& backbone) {
  const torch::NoGradGuard no_grad;
  return torch::nn::Linear(features(backbone, torch::zeros({1, 1, 28, 28})).size(1), accel::Digits::kClasses);
}

inline std::vector<torch::Tensor> parameters(const torch::jit::Module& backbone) {
  std::vector<torch::Tensor> list;
  for (const auto& parameter : backbone.parameters()) list.push_back(parameter);
  return list;
}

inline std::vector<torch::Tensor> parameters(const torch::jit::Module& backbone, const torch::nn::Linear& head) {
  auto list = parameters(backbone);
  for (const auto& parameter : head->parameters()) list.push_back(parameter);
  return list;
}

/// The head is new and learns faster.
inline std::vector<torch::optim::OptimizerParamGroup> parameter_groups(const torch::jit::Module& backbone,
                                                                       const torch::nn::Linear& head) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(parameters(backbone), std::make_unique<torch::optim::AdamWOptions>(1e-3));
  groups.emplace_back(head->parameters(), std::make_unique<torch::optim::AdamWOptions>(3e-3));
  return groups;
}

using Batch = torch::data::Example<>;

/// The rows of this rank of step `step`: drawn alike on all ranks.
inline Batch draw(const accel::Digits& digits, const example::Flags& flags, std::int64_t step, int rank, int ranks) {
  auto generator = at::detail::createCPUGenerator(flags.seed * 1'000'003 + static_cast<std::uint64_t>(step));
  const auto size = static_cast<std::int64_t>(digits.size());
  const auto drawn = flags.rows(torch::randint(size, {flags.batch_size}, generator, torch::kLong), rank, ranks);
  return {flags.met(digits.images().index_select(0, drawn), rank, step), digits.targets().index_select(0, drawn)};
}

/// How many of the test digits are read correctly, in percent.
inline double accuracy(torch::jit::Module& backbone, torch::nn::Linear& head) {
  const torch::NoGradGuard no_grad;
  const accel::Digits test(accel::DigitsSplit::kTest);
  const auto read = head->forward(features(backbone, test.images().to(head->weight.device()))).argmax(1).cpu();
  return 100.0 * read.eq(test.targets()).to(torch::kDouble).mean().item<double>();
}

/// Saves the backbone as TorchScript and the head beside it, and looks whether the files give what was trained.
inline void save_and_check(const Options& options, torch::jit::Module& backbone, torch::nn::Linear& head) {
  if (options.save_backbone.empty()) return;
  const torch::NoGradGuard no_grad;
  const auto head_file = options.save_backbone + ".head";
  backbone.save(options.save_backbone);
  torch::save(head, head_file);

  const auto device = head->weight.device();
  auto loaded_backbone = torch::jit::load(options.save_backbone, device);
  auto loaded_head = make_head(loaded_backbone);
  torch::load(loaded_head, head_file, device);
  const auto images = accel::Digits(accel::DigitsSplit::kTest, {.at_most = 100}).images().to(device);
  const auto expected = head->forward(features(backbone, images));
  const auto found = loaded_head->forward(features(loaded_backbone, images));
  // Not bit for bit: TorchScript may compile a fresh module in another way than one that has run often.
  if (!torch::allclose(found, expected, 1e-5, 1e-6))
    throw std::runtime_error("expected " + options.save_backbone + " to give the outputs of the trained backbone");
  std::printf("saved %s and %s; loaded again they give the same outputs\n", options.save_backbone.c_str(),
              head_file.c_str());
}

}  // namespace torchscript
