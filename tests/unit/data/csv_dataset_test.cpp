#include <accel/csv_dataset.hpp>

#include "support/temporary_folder.hpp"
#include "unit/data/dataset_checks.hpp"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

using accel::CsvDataset;
using accel::CsvOptions;
using accel::load_csv;
using accel::load_csv_matrix;
using accel::Table;
using accel::test::batches_of;
using accel::test::error_of;
using accel::test::TemporaryFolder;
using accel::test::values;
using Texts = std::vector<std::string>;

namespace {

Table read(const std::string& content, const CsvOptions& options) {
  const TemporaryFolder folder;
  return load_csv(folder.write("data.csv", content), options);
}

Texts texts(const std::string& content, char separator = ',') {
  return read(content, {.texts = {1}, .header = false, .separator = separator}).texts.at("1");
}

std::string refusal(const std::string& content, const CsvOptions& options) {
  const TemporaryFolder folder;
  const std::string file = folder.write("data.csv", content);
  return error_of<accel::DataError>([&] { (void)load_csv(file, options); }, folder.path());
}

std::string misuse(const std::string& content, const CsvOptions& options) {
  const TemporaryFolder folder;
  const std::string file = folder.write("data.csv", content);
  return error_of<accel::UsageError>([&] { (void)load_csv(file, options); }, folder.path());
}

}  // namespace

TEST_CASE("columns are taken by name or place, as numbers of their dtype or texts") {
  const Table table = read("height,label,name\n1.5, 3 ,Ann\n-2e2,+4,\"Bo, B.\"\n",
                           {.numbers = {"height", {1, at::kLong}}, .texts = {"name"}});
  CHECK(table.numbers.size() == 2);
  CHECK((table.numbers.at("height").scalar_type() == at::kFloat));
  CHECK(values<float>(table.numbers.at("height")) == std::vector<float>{1.5F, -200.0F});
  CHECK(values<std::int64_t>(table.numbers.at("label")) == std::vector<std::int64_t>{3, 4});
  CHECK(table.texts.at("name") == Texts{"Ann", "Bo, B."});
}

TEST_CASE("all columns are numbers where none is named") {
  const Table table = read("1,2\n3,4", {.header = false});
  CHECK(values<float>(table.numbers.at("0")) == std::vector<float>{1, 3});
  CHECK(values<float>(table.numbers.at("1")) == std::vector<float>{2, 4});
}

TEST_CASE("each dtype has its own range and form") {
  const Table table = read("a,b,c,d\n255,-128,true,0.1\n0,127,0,nan\n",
                           {.numbers = {{"a", at::kByte}, {"b", at::kChar}, {"c", at::kBool}, {"d", at::kDouble}}});
  CHECK(values<std::uint8_t>(table.numbers.at("a")) == std::vector<std::uint8_t>{255, 0});
  CHECK(values<std::int8_t>(table.numbers.at("b")) == std::vector<std::int8_t>{-128, 127});
  CHECK(values<bool>(table.numbers.at("c")) == std::vector<bool>{true, false});
  CHECK(values<double>(table.numbers.at("d"))[0] == 0.1);
  CHECK(std::isnan(values<double>(table.numbers.at("d"))[1]));
}

TEST_CASE("numbers nearer to zero than their dtype can be are zero, and too large ones are refused") {
  const Table table = read("a\n1e-400\n-1e-400\n1e-310\n", {.numbers = {{"a", at::kDouble}}});
  CHECK(values<double>(table.numbers.at("a")) == std::vector<double>{0, 0, 1e-310});
  CHECK(std::signbit(values<double>(table.numbers.at("a"))[1]));
  CHECK(values<float>(read("a\n1e-5000\n", {}).numbers.at("a")) == std::vector<float>{0});
  CHECK(refusal("a\n+-1e-400\n", {}).find("found '+-1e-400';") != std::string::npos);
  CHECK(refusal("a\n1e400\n", {}).find("expected a number in column \"a\" in data.csv:2, found '1e400';") !=
        std::string::npos);
}

TEST_CASE("quoted fields hold separators, quotes and line breaks") {
  CHECK(texts("0,\"a,b\"\n") == Texts{"a,b"});
  CHECK(texts("0,\"say \"\"hi\"\" twice\"\n1,\"\"\"\"\n") == Texts{"say \"hi\" twice", "\""});
  CHECK(texts("0,\"two\nlines\"\r\n1,\"two\r\nlines\"\r\n") == Texts{"two\nlines", "two\r\nlines"});
  CHECK(texts("0,\"\"\n1,\n") == Texts{"", ""});
  CHECK(texts("0, a \n") == Texts{" a "});
}

TEST_CASE("lines end in any way, empty ones are skipped, a byte order mark is left out") {
  CHECK(texts("0,a\r\n\r\n1,b\n\n2,c") == Texts{"a", "b", "c"});
  CHECK(texts("0,a\r\n1,b\r") == Texts{"a", "b"});
  CHECK(texts("0,\"a\"\r\n1,\"b\"") == Texts{"a", "b"});
  CHECK(read("\xef\xbb\xbfx\n1\n", {}).numbers.count("x") == 1);
}

TEST_CASE("tabs separate TSV files, in which quotes may be characters as others") {
  CHECK(texts("0\ta,b\n1\t\"c\td\"\n", '\t') == Texts{"a,b", "c\td"});
  CHECK(
      read("0\t5\" wide\n1\t\"c\n", {.texts = {1}, .header = false, .separator = '\t', .quote = '\0'}).texts.at("1") ==
      Texts{"5\" wide", "\"c"});
}

TEST_CASE("empty numbers are what the options say") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto filled = values<float>(read("a,b\n1,\n,2\n", {.missing = nan}).numbers.at("a"));
  CHECK(filled[0] == 1.0F);
  CHECK(std::isnan(filled[1]));
  CHECK(values<std::int64_t>(read("a,b\n,1\n", {.numbers = {{"a", at::kLong}}, .missing = -1}).numbers.at("a"))[0] ==
        -1);
  CHECK(refusal("a,b\n,1\n", {.numbers = {{"a", at::kLong}}, .missing = nan})
            .find("expected a whole number in -9223372036854775808 .. 9223372036854775807 in column \"a\" in "
                  "data.csv:2, found an empty field, and CsvOptions::missing is nan;") != std::string::npos);
}

TEST_CASE("a matrix has the columns in the order named, or in that of the file") {
  const TemporaryFolder folder;
  const std::string file = folder.write("data.csv", "b,a\n1,2\n3,4\n5,6\n");
  const at::Tensor whole = load_csv_matrix(file);
  CHECK(whole.sizes() == at::IntArrayRef({3, 2}));
  CHECK(values<float>(whole) == std::vector<float>{1, 2, 3, 4, 5, 6});
  CHECK(values<std::int32_t>(load_csv_matrix(file, {.numbers = {{"a", at::kInt}, {"b", at::kInt}}})) ==
        std::vector<std::int32_t>{2, 1, 4, 3, 6, 5});
  CHECK(values<float>(load_csv(file).matrix({"a"})) == std::vector<float>{2, 4, 6});
  CHECK(load_csv(file).matrix({"a", "b"}).sizes() == at::IntArrayRef({3, 2}));
  CHECK(error_of<accel::UsageError>([&] {
          (void)load_csv_matrix(file, {.numbers = {{"a", at::kInt}, "b"}});
        }) == "accel[0/1] load_csv_matrix: expected columns of one dtype, found Int and Float; load_csv reads both");
  CHECK(error_of<accel::UsageError>([&] { (void)load_csv(file).matrix({"c"}); }) ==
        "accel[0/1] Table::matrix: expected a column of numbers, found \"c\"; there are: a, b");
}

TEST_CASE("a data set of a CSV file gives batches of its columns, with workers the same") {
  const TemporaryFolder folder;
  std::string content = "x,name\n";
  for (int i = 0; i < 7; ++i)
    content += std::string(1, static_cast<char>('0' + i)) + ",n" + static_cast<char>('0' + i) + "\n";
  const CsvDataset dataset(folder.write("data.csv", content), {.numbers = {"x"}, .texts = {"name"}});
  CHECK(dataset.size() == 7);
  const Table batch = dataset.get_batch(std::vector<std::size_t>{5, 2});
  CHECK(values<float>(batch.numbers.at("x")) == std::vector<float>{5, 2});
  CHECK(batch.texts.at("name") == Texts{"n5", "n2"});
  const auto alone = batches_of(dataset, 0);
  const auto threads = batches_of(dataset, 2);
  REQUIRE(alone.size() == 3);
  REQUIRE(threads.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(alone[i].numbers.at("x").equal(threads[i].numbers.at("x")));
    CHECK(alone[i].texts == threads[i].texts);
  }
}

TEST_CASE("malformed records are refused with their line") {
  const CsvOptions plain;
  CHECK(refusal("a,b\n1,2\n3\n", plain) ==
        "accel[0/1] load_csv: expected 2 fields, as in line 1 in data.csv:3, found 1; complete the line, or check "
        "CsvOptions::separator and quote");
  CHECK(refusal("a,b\n1,2\n3,4,\n", plain).find("data.csv:3, found 3;") != std::string::npos);
  CHECK(refusal("a,\"b\nb\"\n1,x\n", plain) ==
        "accel[0/1] load_csv: expected a number in column \"b\nb\" in data.csv:3, found 'x'; correct the field, give "
        "the column another dtype, read it as text (CsvOptions::texts), or set CsvOptions::missing for empty ones");
  CHECK(refusal("a\n1\n256\n", {.numbers = {{"a", at::kByte}}})
            .find("expected a whole number in 0 .. 255 in column \"a\" in data.csv:3, found '256';") !=
        std::string::npos);
  CHECK(refusal("a\n1.5\n", {.numbers = {{"a", at::kLong}}}).find("found '1.5';") != std::string::npos);
  CHECK(refusal("a\n2\n", {.numbers = {{"a", at::kBool}}})
            .find("expected true, false, 1 or 0 in column \"a\" in data.csv:2, found '2';") != std::string::npos);
  CHECK(refusal("a\n1 2\n", plain).find("found '1 2';") != std::string::npos);
  CHECK(refusal("a,b\n1,\n", plain).find("found '';") != std::string::npos);
  CHECK(refusal("a\n1\n\"2\n3\n", plain) ==
        "accel[0/1] load_csv: expected a closing quote in data.csv:3, found the end of the file; close the field that "
        "begins here, or set CsvOptions::quote to '\\0'");
  CHECK(refusal("a\n1\"2\n", plain) ==
        "accel[0/1] load_csv: expected quotes around whole fields in data.csv:2, found '1\"'; quote the field and "
        "double the quotes inside, or set CsvOptions::quote to '\\0'");
  CHECK(refusal("a\n\"1\"2\n", plain) ==
        "accel[0/1] load_csv: expected a separator or the end of the line behind a closing quote in data.csv:2, found "
        "'2'; double the quotes inside quoted fields");
  CHECK(refusal("a,b\n", plain) ==
        "accel[0/1] load_csv: expected records in data.csv, found a header row alone; write it again, or set "
        "CsvOptions::header to false");
  CHECK(refusal("\n\n", plain) ==
        "accel[0/1] load_csv: expected records in data.csv, found empty lines alone; write it again");
}

TEST_CASE("columns that cannot be meant are refused") {
  CHECK(misuse("a,b\n1,2\n", {.numbers = {"c"}}) ==
        "accel[0/1] load_csv: expected a column of data.csv, found \"c\"; there are: \"a\", \"b\"");
  CHECK(misuse("a,b\n1,2\n", {.numbers = {2}}) ==
        "accel[0/1] load_csv: expected places of columns in 0 .. 1 for data.csv, found 2; count from 0");
  CHECK(misuse("a,a\n1,2\n", {.numbers = {"a"}}) ==
        "accel[0/1] load_csv: expected one column \"a\" in data.csv, found several; name it by its place");
  CHECK(misuse("a,b\n1,2\n", {.numbers = {"a"}, .texts = {0}}) ==
        "accel[0/1] load_csv: expected columns of different names, found \"a\" twice in data.csv; name each once, or "
        "rename one");
  CHECK(misuse("a,b\n1,2\n", {.numbers = {{"a", at::kComplexFloat}}}) ==
        "accel[0/1] load_csv: expected bool, uint8, a signed integer or a floating type for the numbers of \"a\", "
        "found ComplexFloat; convert the tensor afterwards");
}
