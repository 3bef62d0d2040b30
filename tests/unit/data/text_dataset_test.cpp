#include <accel/text_dataset.hpp>

#include "support/temporary_folder.hpp"
#include "unit/data/dataset_checks.hpp"

#include <filesystem>
#include <string>
#include <vector>

using accel::TextDataset;
using accel::test::batches_of;
using accel::test::error_of;
using accel::test::TemporaryFolder;
using Lines = std::vector<std::string>;

namespace {

Lines lines_of(const std::string& content, const accel::TextDatasetOptions& options = {}) {
  const TemporaryFolder folder;
  const TextDataset dataset(folder.write("lines.txt", content), options);
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < dataset.size(); ++i) all.push_back(i);
  return dataset.get_batch(all);
}

}  // namespace

TEST_CASE("lines end with a line feed, with CRLF, or with the file") {
  CHECK(lines_of("one\ntwo\n") == Lines{"one", "two"});
  CHECK(lines_of("one\ntwo") == Lines{"one", "two"});
  CHECK(lines_of("one\r\ntwo\r\n") == Lines{"one", "two"});
  CHECK(lines_of("one\r\ntwo\r") == Lines{"one", "two"});
  CHECK(lines_of("a\rb\n") == Lines{"a\rb"});
  CHECK(lines_of("\n") == Lines{""});
  CHECK(lines_of("\xef\xbb\xbfone\n") == Lines{"one"});
}

TEST_CASE("empty lines are samples, or are skipped") {
  CHECK(lines_of("one\n\n\r\ntwo\n\n") == Lines{"one", "", "", "two", ""});
  CHECK(lines_of("one\n\n\r\ntwo\n\n", {.skip_empty = true}) == Lines{"one", "two"});
}

TEST_CASE("lines are given in the order asked for, and workers give the same batches") {
  const TemporaryFolder folder;
  const TextDataset dataset(folder.write("lines.txt", "a\nb\nc\nd\ne\nf\ng\n"));
  CHECK(dataset.line(6) == "g");
  CHECK(dataset.get_batch(std::vector<std::size_t>{4, 0, 4}) == Lines{"e", "a", "e"});
  const auto alone = batches_of(dataset, 0);
  CHECK(alone.size() == 3);
  CHECK(alone[0].size() == 3);
  CHECK(alone == batches_of(dataset, 2));
}

TEST_CASE("a data set outlives the name of its file") {
  const TemporaryFolder folder;
  const std::string file = folder.write("lines.txt", "one\ntwo\n");
  const TextDataset dataset(file);
  std::filesystem::remove(file);
  CHECK(TextDataset(dataset).line(1) == "two");
}

TEST_CASE("files that are not there or hold nothing are refused by name") {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& file) {
    return error_of<accel::DataError>([&] { (void)TextDataset(file, {.skip_empty = true}); }, folder.path());
  };
  CHECK(refusal(folder / "none.txt") ==
        "accel[0/1] TextDataset: expected a file that can be read in none.txt, found No such file or directory; check "
        "the path");
  CHECK(refusal(folder.write("empty.txt", "")) ==
        "accel[0/1] TextDataset: expected data in empty.txt, found an empty file; write it again");
  std::filesystem::create_directory(folder / "inner");
  CHECK(refusal(folder / "inner") ==
        "accel[0/1] TextDataset: expected a file in inner, found a directory; name a file inside it");
  CHECK(refusal(folder.write("breaks.txt", "\n\r\n")) ==
        "accel[0/1] TextDataset: expected lines in breaks.txt, found none but empty ones; write it again, or keep "
        "empty lines");
  CHECK(refusal("/dev/null") ==
        "accel[0/1] TextDataset: expected a file in /dev/null, found a pipe or a device; write its content to a file "
        "first");
}

TEST_CASE("a line that is not there is refused") {
  const TemporaryFolder folder;
  const TextDataset dataset(folder.write("lines.txt", "one\n"));
  CHECK(error_of<accel::UsageError>([&] { (void)dataset.get_batch(std::vector<std::size_t>{1}); }) ==
        "accel[0/1] TextDataset: expected indices below 1, the number of lines, found 1; take them from 0 on");
}
