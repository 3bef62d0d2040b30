#pragma once

// A language model of characters: an LSTM that reads the King James Bible and then writes on.

#include "common.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <tuple>

#ifndef ACCEL_KJV_FILE
#define ACCEL_KJV_FILE ""
#endif

namespace lstm_lm {

struct Options {
  example::Flags flags = {};
  std::string text = ACCEL_KJV_FILE;
  double target = 0.0;
};

inline Options read_options(int argc, char** argv, example::Twin twin) {
  Options options;
  options.flags = example::read_flags(
      argc, argv, "Trains an LSTM on the characters of a text.", twin, {.steps = 1000, .batch_size = 32},
      [&](CLI::App& app) {
        app.add_option("--text", options.text, "file to read")->capture_default_str();
        app.add_option("--target", options.target, "stop when the loss is below")->capture_default_str();
      });
  return options;
}

/// Bytes in, one-hot; scores of the next byte out.
struct NetImpl : torch::nn::Module {
  /// What is remembered of the bytes before; nothing at the beginning of the text.
  using Memory = std::optional<std::tuple<torch::Tensor, torch::Tensor>>;

  explicit NetImpl(std::int64_t symbols)
      : lstm(register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(symbols, kHidden).batch_first(true)))),
        head(register_module("head", torch::nn::Linear(kHidden, symbols))) {}

  /// [rows, length, symbols] to [rows, length, symbols]. Gradients do not flow into what was remembered before.
  torch::Tensor forward(const torch::Tensor& symbols, Memory& memory) {
    const auto [read, state] = lstm->forward(symbols, memory);
    memory = std::tuple(std::get<0>(state).detach(), std::get<1>(state).detach());
    return head->forward(read);
  }

  static constexpr std::int64_t kHidden = 128;
  torch::nn::LSTM lstm;
  torch::nn::Linear head;
};
TORCH_MODULE(Net);
using Memory = NetImpl::Memory;

/// One-hot bytes [rows, length, symbols], and the byte after each as a class.
using Batch = torch::data::Example<>;

/// A text cut in as many rows as a batch has; step after step goes along all rows at once.
class Text {
 public:
  explicit Text(const Options& options) {
    std::ifstream file(options.text, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    if (bytes.empty())
      throw std::runtime_error("expected a text in '" + options.text +
                               "', found none; run `make setup` or give --text");
    const std::set<char> distinct(bytes.begin(), bytes.end());
    symbols_.assign(distinct.begin(), distinct.end());
    length_ = static_cast<std::int64_t>(bytes.size()) / options.flags.batch_size;
    if (length_ <= kWindow)
      throw std::runtime_error("expected rows of more than " + std::to_string(kWindow) + " bytes, found " +
                               std::to_string(length_) + "; give a longer --text or a smaller --batch-size");
    rows_ = codes(bytes).narrow(0, 0, options.flags.batch_size * length_).view({options.flags.batch_size, length_});
  }

  [[nodiscard]] std::int64_t symbols() const { return static_cast<std::int64_t>(symbols_.size()); }

  /// Step `step` of the rows of this rank, which stay the same for the whole training.
  [[nodiscard]] Batch next(const example::Flags& flags, std::int64_t step, int rank, int ranks) const {
    const auto begin = step % ((length_ - 1) / kWindow) * kWindow;
    const auto mine = flags.rows(rows_, rank, ranks).narrow(1, begin, kWindow + 1);
    return {flags.met(one_hot(mine.narrow(1, 0, kWindow)), rank, step), mine.narrow(1, 1, kWindow).contiguous()};
  }

  /// `start`, and what the net writes after it.
  [[nodiscard]] std::string written(Net& net, std::string start, std::int64_t length, std::uint64_t seed) const {
    const torch::NoGradGuard no_grad;
    const auto device = net->head->weight.device();
    auto generator = at::detail::createCPUGenerator(seed);
    Memory memory;
    auto read = codes(start);
    for (std::int64_t i = 0; i < length; ++i) {
      const auto scores = net->forward(one_hot(read).unsqueeze(0).to(device), memory)[0][-1].cpu();
      read = torch::multinomial((scores / 0.7).softmax(0), 1, false, generator);  // likely bytes more often than read
      start += symbols_[static_cast<std::size_t>(read.item<std::int64_t>())];
    }
    return start;
  }

 private:
  static constexpr std::int64_t kWindow = 32;

  [[nodiscard]] torch::Tensor codes(const std::string& bytes) const {
    std::array<std::int64_t, 256> code{};
    for (std::size_t i = 0; i < symbols_.size(); ++i)
      code[static_cast<unsigned char>(symbols_[i])] = static_cast<std::int64_t>(i);
    auto tensor = torch::empty({static_cast<std::int64_t>(bytes.size())}, torch::kLong);
    std::transform(bytes.begin(), bytes.end(), tensor.data_ptr<std::int64_t>(),
                   [&](char byte) { return code[static_cast<unsigned char>(byte)]; });
    return tensor;
  }

  [[nodiscard]] torch::Tensor one_hot(const torch::Tensor& tensor) const {
    return torch::one_hot(tensor, symbols()).to(torch::kFloat);
  }

  std::string symbols_;
  std::int64_t length_ = 0;
  torch::Tensor rows_;
};

/// Mean over all bytes, in nats.
inline torch::Tensor loss_of(const torch::Tensor& scores, const torch::Tensor& target) {
  return torch::nn::functional::cross_entropy(scores.flatten(0, 1), target.flatten());
}

}  // namespace lstm_lm
