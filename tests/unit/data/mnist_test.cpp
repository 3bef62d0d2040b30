#include <accel/mnist.hpp>

#include <torch/data/example.h>
#include "support/temporary_folder.hpp"
#include "unit/data/dataset_checks.hpp"

#include <boost/crc.hpp>

#include <string>
#include <vector>

using accel::load_idx;
using accel::Mnist;
using accel::test::batches_of;
using accel::test::bytes;
using accel::test::error_of;
using accel::test::TemporaryFolder;
using accel::test::values;

namespace {

constexpr int kPixels = 28 * 28;

std::string image(int first) {
  std::string pixels(kPixels, '\0');
  for (int i = 0; i < kPixels; ++i) pixels[static_cast<std::size_t>(i)] = static_cast<char>((first + i) % 256);
  return pixels;
}

std::string images(int count) {
  std::string content = bytes(0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, 28, 0, 0, 0, 28);
  for (int i = 0; i < count; ++i) content += image(i);
  return content;
}

std::string labels(int count) {
  std::string content = bytes(0, 0, 8, 1, 0, 0, 0, count);
  for (int i = 0; i < count; ++i) content += static_cast<char>(9 - i);
  return content;
}

std::string little_endian(std::uint32_t number, int width) {
  std::string text;
  for (int i = 0; i < width; ++i) text += static_cast<char>(number >> (8 * i) & 255U);
  return text;
}

// One stored block: no compression is needed to be a gzip file.
std::string gzip(const std::string& content) {
  const auto size = static_cast<std::uint32_t>(content.size());
  boost::crc_32_type crc;
  crc.process_bytes(content.data(), content.size());
  return bytes(0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1) + little_endian(size, 2) + little_endian(~size, 2) + content +
         little_endian(crc.checksum(), 4) + little_endian(size, 4);
}

std::string csv_row(int label, int first) {
  std::string row{static_cast<char>('0' + label)};
  const std::string pixels = image(first);
  for (const char pixel : pixels) row.append(",").append(std::to_string(static_cast<unsigned char>(pixel)));
  return row.append("\n");
}

std::string refusal(const std::string& images_content, const std::string& labels_content) {
  const TemporaryFolder folder;
  const std::string first = folder.write("images", images_content);
  const std::string second = folder.write("labels", labels_content);
  return error_of<accel::DataError>([&] { (void)Mnist(first, second); }, folder.path());
}

std::string idx_refusal(const std::string& content) {
  const TemporaryFolder folder;
  const std::string file = folder.write("idx", content);
  return error_of<accel::DataError>([&] { (void)load_idx(file); }, folder.path());
}

}  // namespace

TEST_CASE("images and labels of IDX files, plain and gzip, are read") {
  const TemporaryFolder folder;
  const Mnist plain(folder.write("images", images(5)), folder.write("labels", labels(5)));
  const Mnist packed(folder.write("images.gz", gzip(images(5))), folder.write("labels.gz", gzip(labels(5))));
  for (const Mnist& data : {plain, packed}) {
    CHECK(data.size() == 5);
    CHECK(data.images().sizes() == at::IntArrayRef({5, 28, 28}));
    CHECK((data.images().scalar_type() == at::kByte));
    CHECK(data.images()[3][0][2].item<int>() == 5);
    CHECK(data.images()[4][27][27].item<int>() == (4 + kPixels - 1) % 256);
    CHECK(values<std::int64_t>(data.targets()) == std::vector<std::int64_t>{9, 8, 7, 6, 5});
  }
}

TEST_CASE("pixels of batches are floats in 0 .. 1, or bytes") {
  const TemporaryFolder folder;
  const std::string first = folder.write("images", images(5));
  const std::string second = folder.write("labels", labels(5));
  const std::vector<std::size_t> indices{4, 1};
  const auto floats = Mnist(first, second).get_batch(indices);
  CHECK(floats.data.sizes() == at::IntArrayRef({2, 28, 28}));
  CHECK(floats.data[1][0][0].item<float>() == 1.0F / 255.0F);
  CHECK(floats.data.max().item<float>() == 1.0F);
  CHECK(values<std::int64_t>(floats.target) == std::vector<std::int64_t>{5, 8});
  const auto raw = Mnist(first, second, {.as_float = false, .channel = true, .at_most = 2})
                       .get_batch(std::vector<std::size_t>{0, 1});
  CHECK((raw.data.scalar_type() == at::kByte));
  CHECK(raw.data.sizes() == at::IntArrayRef({2, 1, 28, 28}));
  CHECK(Mnist(first, second, {.at_most = 2}).size() == 2);
  CHECK(error_of<accel::UsageError>([&] {
          (void)Mnist(first, second, {.at_most = 2}).get_batch(std::vector<std::size_t>{2});
        }).find("expected indices below 2") != std::string::npos);
}

TEST_CASE("workers give the same batches") {
  const TemporaryFolder folder;
  const Mnist data(folder.write("images", images(8)), folder.write("labels", labels(8)));
  const auto alone = batches_of(data, 0);
  const auto threads = batches_of(data, 2);
  REQUIRE(alone.size() == 3);
  REQUIRE(threads.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(alone[i].data.equal(threads[i].data));
    CHECK(alone[i].target.equal(threads[i].target));
  }
}

TEST_CASE("CSV files are read with a header row and without") {
  const TemporaryFolder folder;
  std::string header = "label";
  for (int i = 0; i < kPixels; ++i) header += ",pixel" + std::to_string(i);
  const Mnist bare = Mnist::from_csv(folder.write("bare.csv", csv_row(9, 0) + csv_row(3, 7)));
  const Mnist named = Mnist::from_csv(folder.write("named.csv", header + "\n" + csv_row(9, 0) + csv_row(3, 7)));
  for (const Mnist& data : {bare, named}) {
    CHECK(values<std::int64_t>(data.targets()) == std::vector<std::int64_t>{9, 3});
    CHECK(data.images().sizes() == at::IntArrayRef({2, 28, 28}));
    CHECK(data.images()[1][0][0].item<int>() == 7);
  }
  const auto refused = [&](const std::string& content) {
    const std::string file = folder.write("bad.csv", content);
    return error_of<accel::DataError>([&] { (void)Mnist::from_csv(file); }, folder.path());
  };
  CHECK(refused(csv_row(1, 0) + "2,3\n") ==
        "accel[0/1] Mnist::from_csv: expected 785 fields, a label and 784 pixels in bad.csv:2, found 2; write a label "
        "and 784 pixels on each line");
  std::string wrong = csv_row(1, 0);
  wrong.replace(4, 1, "300");
  CHECK(refused(wrong).find("expected a whole number in 0 .. 255 in field 2 in bad.csv:1, found '300';") !=
        std::string::npos);
  CHECK(refused(header + "\n").find("expected images in bad.csv, found none;") != std::string::npos);
}

TEST_CASE("IDX files of each type are read, in the byte order of the machine") {
  const TemporaryFolder folder;
  const auto read = [&](const std::string& content) { return load_idx(folder.write("idx", content)); };
  CHECK(values<std::int8_t>(read(bytes(0, 0, 9, 1, 0, 0, 0, 2, 0xff, 2))) == std::vector<std::int8_t>{-1, 2});
  CHECK(values<std::int16_t>(read(bytes(0, 0, 11, 1, 0, 0, 0, 1, 1, 2))) == std::vector<std::int16_t>{258});
  CHECK(values<std::int32_t>(read(bytes(0, 0, 12, 1, 0, 0, 0, 1, 0, 1, 0, 2))) == std::vector<std::int32_t>{65538});
  CHECK(values<float>(read(bytes(0, 0, 13, 1, 0, 0, 0, 1, 0x3f, 0x80, 0, 0))) == std::vector<float>{1.0F});
  CHECK(values<double>(read(bytes(0, 0, 14, 1, 0, 0, 0, 1, 0xc0, 0, 0, 0, 0, 0, 0, 0))) == std::vector<double>{-2.0});
}

TEST_CASE("a mapped file may be changed in memory and stays as it is") {
  const TemporaryFolder folder;
  const std::string file = folder.write("idx", bytes(0, 0, 8, 1, 0, 0, 0, 2, 1, 2));
  load_idx(file).fill_(7);
  CHECK(values<std::uint8_t>(load_idx(file)) == std::vector<std::uint8_t>{1, 2});
}

TEST_CASE("files of another form are refused") {
  CHECK(idx_refusal("plain text") ==
        "accel[0/1] load_idx: expected an IDX file, which begins with two bytes of zero in idx, found 'plai'; load it "
        "again, or name the right file");
  CHECK(idx_refusal(bytes(0, 0, 7, 1, 0, 0, 0, 0))
            .find("expected an IDX type of 8, 9, 11, 12, 13 or 14 in the third byte in idx, found 7;") !=
        std::string::npos);
  CHECK(idx_refusal(bytes(0, 0, 8, 3, 0, 0))
            .find("expected a header of 16 bytes for 3 dimensions in idx, found 6 bytes;") != std::string::npos);
  CHECK(idx_refusal(bytes(0, 0, 8, 1, 0, 0, 0, 3, 1, 2))
            .find("expected values of shape [3] behind the header in idx, found 2 bytes for them;") !=
        std::string::npos);
  CHECK(idx_refusal(bytes(0, 0, 8, 1, 0, 0, 0, 1, 1, 2)).find("found 2 bytes for them;") != std::string::npos);
  // No values at all, but steps between them that no tensor can have.
  CHECK(idx_refusal(bytes(0, 0, 13, 3) + std::string(4, '\0') + std::string(8, '\xff'))
            .find("expected values of shape [0, 4294967295, 4294967295] behind the header in idx, found 0 bytes") !=
        std::string::npos);
  CHECK(
      idx_refusal(gzip(labels(3)).substr(0, 30)).find("expected a whole gzip file in idx, found that it is damaged") !=
      std::string::npos);
  CHECK(idx_refusal(gzip("")).find("found a gzip file of nothing;") != std::string::npos);
}

TEST_CASE("files that do not belong together are refused") {
  CHECK(refusal(images(3), labels(2)) ==
        "accel[0/1] Mnist: expected 3 labels, one for each image in labels, found 2; name two files of the same split");
  CHECK(refusal(labels(3), images(3)).find("expected uint8 images of shape [N, 28, 28] in images, found Byte [3];") !=
        std::string::npos);
  CHECK(refusal(images(3), images(3)).find("expected uint8 labels of shape [N] in labels, found Byte [3, 28, 28];") !=
        std::string::npos);
}
