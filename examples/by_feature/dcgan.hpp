#pragma once

// A generator of handwritten digits and the discriminator it plays against, after pytorch/examples cpp/dcgan: their
// networks, data, noise, and how the drawn digits are looked at.

#include "common.hpp"

#include <accel/data.hpp>
#include <accel/digits.hpp>

#include <png.h>

namespace dcgan {

constexpr std::int64_t kNoise = 64;
constexpr std::int64_t kSide = 28;

// Both networks normalise each image by itself. BatchNorm, as in the paper, would take its mean over the images of one
// rank, and the training would depend on the number of ranks. Their activations are smooth: at the kink of a ReLU,
// rounding alone decides a gradient.
inline torch::nn::GroupNorm norm(std::int64_t channels) {
  return torch::nn::GroupNorm(torch::nn::GroupNormOptions(8, channels));
}

/// Noise [batch, kNoise] to images [batch, 1, 28, 28] in -1 .. 1.
struct GeneratorImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& noise) { return net->forward(noise.view({-1, kNoise, 1, 1})); }

  static torch::nn::ConvTranspose2d grow(std::int64_t from, std::int64_t to, std::int64_t kernel, std::int64_t stride,
                                         std::int64_t padding) {
    return torch::nn::ConvTranspose2d(
        torch::nn::ConvTranspose2dOptions(from, to, kernel).stride(stride).padding(padding).bias(false));
  }

  torch::nn::Sequential net =
      register_module("net", torch::nn::Sequential(grow(kNoise, 64, 7, 1, 0), norm(64), torch::nn::SiLU(),  // 7 x 7
                                                   grow(64, 32, 4, 2, 1), norm(32), torch::nn::SiLU(),      // 14 x 14
                                                   grow(32, 1, 4, 2, 1), torch::nn::Tanh()));               // 28 x 28
};
TORCH_MODULE(Generator);

/// Images to logits [batch]: how real each looks.
struct DiscriminatorImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& images) { return net->forward(images).view({-1}); }

  static torch::nn::Conv2d shrink(std::int64_t from, std::int64_t to, std::int64_t kernel, std::int64_t stride,
                                  std::int64_t padding) {
    return torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, kernel).stride(stride).padding(padding).bias(false));
  }

  torch::nn::Sequential net =
      register_module("net", torch::nn::Sequential(shrink(1, 32, 4, 2, 1), torch::nn::SiLU(),             // 14 x 14
                                                   shrink(32, 64, 4, 2, 1), norm(64), torch::nn::SiLU(),  // 7 x 7
                                                   shrink(64, 1, 7, 1, 0)));                              // 1 x 1
};
TORCH_MODULE(Discriminator);

struct Flags : example::Flags {
  std::string image = "samples.png";
};

inline Flags read_flags(int argc, char** argv, example::Twin twin) {
  Flags flags;
  const auto more = [&flags](CLI::App& app) {
    app.add_option("--image", flags.image, "PNG file for 64 drawn digits; empty: none")->capture_default_str();
  };
  static_cast<example::Flags&>(flags) =
      example::read_flags(argc, argv, "Learns to draw digits by two networks that play against each other.", twin,
                          {.steps = 900, .batch_size = 64}, more);
  return flags;
}

// The large eps keeps Adam from making much of gradients that are little more than rounding, which differs with the
// number of ranks.
inline torch::optim::AdamOptions adam_options() {
  return torch::optim::AdamOptions(5e-4).eps(1e-5).betas({0.5, 0.999});
}

using Batch = torch::data::Example<>;

/// What one of `ranks` ranks reads. Short batches are left out, so that a step is the same digits on any number of
/// ranks.
inline accel::DataLoader<Batch> make_loader(const Flags& flags, int ranks) {
  const accel::Digits digits(accel::DigitsSplit::kTrain);
  if (static_cast<std::size_t>(flags.batch_size) > digits.size())
    throw std::invalid_argument("there are no more digits than " + std::to_string(digits.size()) +
                                "; choose a smaller --batch-size");
  return accel::make_data_loader(
      digits, {.batch_size = flags.share(ranks), .shuffle = true, .seed = flags.seed, .drop_last = true});
}

/// The digits of a batch in -1 .. 1, as the generator draws them.
inline torch::Tensor images_of(const Batch& batch, const Flags& flags, std::int64_t step, int rank) {
  return flags.met(batch.data * 2.0 - 1.0, rank, step);
}

/// The rows of this rank of the noise of step `step`: drawn alike on all ranks.
inline torch::Tensor draw_noise(const Flags& flags, std::int64_t step, int rank, int ranks) {
  auto generator = at::detail::createCPUGenerator(flags.seed * 1'000'003 + static_cast<std::uint64_t>(step));
  return flags.rows(torch::randn({flags.batch_size, kNoise}, generator), rank, ranks);
}

/// How far the discriminator's answers are from `label`: 1 for real, 0 for drawn.
inline torch::Tensor loss_of(const torch::Tensor& logits, double label) {
  return torch::nn::functional::binary_cross_entropy_with_logits(logits, torch::full_like(logits, label));
}

/// `count` digits as the generator draws them now; the same noise at every call.
inline torch::Tensor draw_digits(Generator& generator, std::int64_t count) {
  const torch::NoGradGuard no_grad;
  const auto noise = torch::randn({count, kNoise}, at::detail::createCPUGenerator(12345));
  return generator->forward(noise.to(generator->parameters().front().device())).cpu();
}

/// How far drawn digits are from 1,000 real ones that were not trained with: the sliced Wasserstein distance, a mean
/// over random directions of how far one has to move the brightness along them. Falls as the generator learns; the
/// losses of two players need not.
inline double distance_to_digits(Generator& generator) {
  const accel::Digits digits(accel::DigitsSplit::kTest);
  const auto real = digits.images().flatten(1) * 2.0 - 1.0;
  const auto drawn = draw_digits(generator, real.size(0)).flatten(1);
  auto directions = torch::randn({kSide * kSide, 256}, at::detail::createCPUGenerator(54321));
  directions = directions / directions.norm(2, 0, true);
  const auto ordered = [&](const torch::Tensor& images) { return std::get<0>(images.matmul(directions).sort(0)); };
  return (ordered(real) - ordered(drawn)).abs().mean().item<double>();
}

/// Prints how good the generator is, and draws 8 x 8 digits into the file of --image.
inline void show(Generator& generator, const Flags& flags) {
  std::printf("distance of drawn digits to real ones %.4f\n", distance_to_digits(generator));
  if (flags.image.empty()) return;
  const auto rows = draw_digits(generator, 64).view({8, 8, kSide, kSide}).permute({0, 2, 1, 3});
  const auto pixels = ((rows + 1.0) * 127.5).round().to(torch::kByte).contiguous();
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = image.height = 8 * kSide;
  image.format = PNG_FORMAT_GRAY;
  if (png_image_write_to_file(&image, flags.image.c_str(), 0, pixels.const_data_ptr<std::uint8_t>(), 0, nullptr) == 0)
    throw std::runtime_error("expected to write the drawn digits to " + flags.image + ", found: " + image.message);
}

}  // namespace dcgan
