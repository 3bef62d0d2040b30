#include <accel/data.hpp>
#include <accel/digits.hpp>
#include <accel/error.hpp>

#include <torch/data/example.h>
#include <unistd.h>
#include "data/gzip_file.hpp"
#include "support/torch_doctest.hpp"

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <vector>

using accel::Digits;
using accel::DigitsSplit;

namespace {

std::string bytes(std::initializer_list<int> values) {
  std::string text;
  for (const int value : values) text += static_cast<char>(value);
  return text;
}

const std::string kDeflated = bytes({0xcb, 0x48, 0xcd, 0xc9, 0xc9, 0x57, 0x48, 0xc9, 0x4c, 0xcf, 0x2c, 0x29, 0x06, 0,
                                     // CRC-32 and length
                                     0x37, 0x00, 0x1d, 0xa7, 0x0c, 0, 0, 0});
// As gzip writes "hello digits" without and with a file name.
const std::string kGzip = bytes({0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3}) + kDeflated;
const std::string kNamedGzip = bytes({0x1f, 0x8b, 8, 8, 0x70, 0x39, 0x0e, 0x6b, 0, 3, 'h', 'd', 0}) + kDeflated;

struct TempFile {
  explicit TempFile(const std::string& content)
      : path(std::filesystem::temp_directory_path() /
             ("accel_digits_test_" + std::to_string(getpid()) + "_" + std::to_string(++number))) {
    std::ofstream(path, std::ios::binary) << content;
  }
  ~TempFile() { std::filesystem::remove(path); }
  std::filesystem::path path;
  static inline int number = 0;
};

std::string refusal(const std::string& content) {
  const TempFile file(content);
  try {
    (void)Digits(DigitsSplit::kTrain, {.file = file.path.string()});
  } catch (const accel::UsageError& e) {
    return e.what();
  }
  return "no UsageError";
}

std::vector<std::int64_t> counts_of(const at::Tensor& targets) {
  const at::Tensor counts = targets.bincount();
  return {counts.const_data_ptr<std::int64_t>(), counts.const_data_ptr<std::int64_t>() + counts.numel()};
}

}  // namespace

TEST_CASE("gzip files with and without a name are read, damaged ones refused") {
  CHECK(accel::detail::read_gzip(TempFile(kGzip).path) == "hello digits");
  CHECK(accel::detail::read_gzip(TempFile(kNamedGzip).path) == "hello digits");
  std::string damaged = kGzip;
  damaged[24] ^= 1;
  CHECK_THROWS_WITH(accel::detail::read_gzip(TempFile(damaged).path), "it is damaged: its checksum does not match");
  CHECK_THROWS_WITH(accel::detail::read_gzip(TempFile("plain text, long enough").path), "it is no gzip file");
  CHECK_THROWS_AS(accel::detail::read_gzip(TempFile(kGzip.substr(0, 20)).path), std::runtime_error);
  CHECK_THROWS_WITH(accel::detail::read_gzip("/nonexistent"), "No such file or directory");
}

TEST_CASE("the split is stratified: 400 and 100 of each digit") {
  const Digits train(DigitsSplit::kTrain);
  const Digits test(DigitsSplit::kTest);
  CHECK(train.size() == 4000);
  CHECK(test.size() == 1000);
  CHECK(counts_of(train.targets()) == std::vector<std::int64_t>(10, 400));
  CHECK(counts_of(test.targets()) == std::vector<std::int64_t>(10, 100));
  CHECK(train.images().sizes().vec() == std::vector<std::int64_t>{4000, 1, 28, 28});
  CHECK((train.images().scalar_type() == at::kFloat));
  CHECK(train.images().min().item<float>() == 0.0F);
  CHECK(train.images().max().item<float>() == 1.0F);
  // Whole pixels again: their sum over both splits is that of the file.
  const auto pixels = [](const Digits& digits) { return (digits.images().to(at::kDouble) * 255.0).round().sum(); };
  CHECK((pixels(train) + pixels(test)).item<double>() == 131267102.0);
}

TEST_CASE("the order is mixed and always the same") {
  const Digits train(DigitsSplit::kTrain);
  CHECK(train.targets().equal(Digits(DigitsSplit::kTrain).targets()));
  CHECK(counts_of(train.targets().slice(0, 0, 200)).size() == 10);
  const std::vector<std::int64_t> first(train.targets().const_data_ptr<std::int64_t>(),
                                        train.targets().const_data_ptr<std::int64_t>() + 10);
  CHECK(first == std::vector<std::int64_t>{7, 1, 0, 8, 1, 7, 6, 3, 9, 0});
}

TEST_CASE("a batch holds the rows asked for, in that order") {
  const Digits digits(DigitsSplit::kTest, {.at_most = 50});
  CHECK(digits.size() == 50);
  const auto batch = digits.get_batch({std::vector<std::size_t>{7, 3}});
  CHECK(batch.data[0].equal(digits.images()[7]));
  CHECK(batch.target[1].equal(digits.targets()[3]));
  CHECK(accel::make_data_loader(digits, {.batch_size = 16}).size() == 4);
}

TEST_CASE("a missing or wrong file is an error that names it and the remedy") {
  std::string text;
  try {
    (void)Digits(DigitsSplit::kTrain, {.file = "/nonexistent/mnist_5k.csv.gz"});
  } catch (const accel::UsageError& e) {
    text = e.what();
  }
  CHECK(text ==
        "accel[0/1] Digits: expected 5,000 digits in /nonexistent/mnist_5k.csv.gz, found: no such file; run "
        "`make setup` to download them, or set ACCEL_DEPS to the folder it filled");
  CHECK(refusal("plain text, long enough").find("found: it is no gzip file") != std::string::npos);
  CHECK(refusal(kGzip).find("found: row 1 of another shape") != std::string::npos);
}
