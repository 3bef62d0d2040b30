#include <accel/json_dataset.hpp>

#include "support/temporary_folder.hpp"
#include "unit/data/dataset_checks.hpp"

#include <string>
#include <vector>

using accel::JsonLinesDataset;
using accel::JsonLinesOptions;
using accel::JsonType;
using accel::load_json_lines;
using accel::Table;
using accel::test::batches_of;
using accel::test::error_of;
using accel::test::TemporaryFolder;
using accel::test::values;
using Texts = std::vector<std::string>;

namespace {

Table read(const std::string& content, const JsonLinesOptions& options) {
  const TemporaryFolder folder;
  return load_json_lines(folder.write("data.jsonl", content), options);
}

std::string refusal(const std::string& content, const JsonLinesOptions& options) {
  const TemporaryFolder folder;
  const std::string file = folder.write("data.jsonl", content);
  return error_of<accel::DataError>([&] { (void)load_json_lines(file, options); }, folder.path());
}

const JsonLinesOptions kText{.fields = {{.name = "t"}}};
const JsonLinesOptions kNumber{.fields = {{.name = "n", .type = JsonType::kNumber}}};
const JsonLinesOptions kVector{.fields = {{.name = "v", .type = JsonType::kVector}}};

}  // namespace

TEST_CASE("each field becomes a column of its type") {
  const Table table = read(
      "{\"t\": \"caf\\u00e9\\n\", \"n\": 1, \"v\": [1, 2.5], \"ids\": [7], \"words\": [\"a\", \"b\"], \"other\": "
      "{}}\r\n"
      "\n"
      "{\"ids\": [], \"words\": [], \"v\": [3, 4], \"n\": -2, \"t\": \"\"}",
      {.fields = {{.name = "t"},
                  {.name = "n", .type = JsonType::kNumber, .dtype = at::kLong},
                  {.name = "v", .type = JsonType::kVector},
                  {.name = "ids", .type = JsonType::kNumberList},
                  {.name = "words", .type = JsonType::kTextList}}});
  CHECK(table.texts.at("t") == Texts{"caf\xc3\xa9\n", ""});
  CHECK(values<std::int64_t>(table.numbers.at("n")) == std::vector<std::int64_t>{1, -2});
  CHECK(table.numbers.at("v").sizes() == at::IntArrayRef({2, 2}));
  CHECK(values<float>(table.numbers.at("v")) == std::vector<float>{1, 2.5F, 3, 4});
  CHECK(table.number_lists.at("ids") == std::vector<std::vector<double>>{{7}, {}});
  CHECK(table.text_lists.at("words") == std::vector<Texts>{{"a", "b"}, {}});
  CHECK(table.numbers.size() == 2);
}

TEST_CASE("truth values, whole floating numbers and deeper fields are read") {
  const Table table = read("{\"meta\": {\"ok\": true, \"n\": 3.0}}\n{\"meta\": {\"ok\": false, \"n\": 4}}\n",
                           {.fields = {{.name = "/meta/ok", .type = JsonType::kNumber, .dtype = at::kBool},
                                       {.name = "/meta/n", .type = JsonType::kNumber, .dtype = at::kInt}}});
  CHECK(values<bool>(table.numbers.at("/meta/ok")) == std::vector<bool>{true, false});
  CHECK(values<std::int32_t>(table.numbers.at("/meta/n")) == std::vector<std::int32_t>{3, 4});
}

TEST_CASE("numbers that are null or not there are what the options say") {
  JsonLinesOptions options = kNumber;
  options.missing = -1;
  CHECK(values<float>(read("{\"n\": null}\n{}\n{\"n\": 2}\n", options).numbers.at("n")) ==
        std::vector<float>{-1, -1, 2});
}

TEST_CASE("a data set of JSON lines gives batches of its columns, with workers the same") {
  const TemporaryFolder folder;
  const JsonLinesDataset dataset(
      folder.write("data.jsonl",
                   "{\"v\":[0],\"l\":[0]}\n{\"v\":[1],\"l\":[1,1]}\n{\"v\":[2],\"l\":[]}\n{\"v\":[3],\"l\":[3]}\n"),
      {.fields = {{.name = "v", .type = JsonType::kVector}, {.name = "l", .type = JsonType::kNumberList}}});
  CHECK(dataset.size() == 4);
  const Table batch = dataset.get_batch(std::vector<std::size_t>{3, 1});
  CHECK(values<float>(batch.numbers.at("v")) == std::vector<float>{3, 1});
  CHECK(batch.number_lists.at("l") == std::vector<std::vector<double>>{{3}, {1, 1}});
  const auto alone = batches_of(dataset, 0);
  const auto threads = batches_of(dataset, 2);
  REQUIRE(alone.size() == 2);
  REQUIRE(threads.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(alone[i].numbers.at("v").equal(threads[i].numbers.at("v")));
    CHECK(alone[i].number_lists == threads[i].number_lists);
  }
}

TEST_CASE("malformed lines are refused with line and column") {
  const std::string text = refusal("{\"t\": \"a\"}\n{\"t\": oops}\n", kText);
  CHECK(text.find(
            "accel[0/1] load_json_lines: expected a JSON object in data.jsonl:2, found at column 7: syntax error") ==
        0);
  CHECK(text.find("; correct the line") != std::string::npos);
  CHECK(refusal("{\"t\": \"a\"", kText).find("data.jsonl:1, found at column 10:") != std::string::npos);
  CHECK(refusal("{\"t\": \"a\"} {}\n", kText).find("data.jsonl:1, found at column 12:") != std::string::npos);
  CHECK(refusal("{\"t\": \"\xff\"}\n", kText).find("data.jsonl:1, found at column 8:") != std::string::npos);
  CHECK(refusal("[1]\n", kText) ==
        "accel[0/1] load_json_lines: expected a JSON object in data.jsonl:1, found '[1]'; write one object on each "
        "line");
  CHECK(refusal(" \n\n", kText) ==
        "accel[0/1] load_json_lines: expected JSON objects in data.jsonl, found empty lines alone; write it again");
}

TEST_CASE("fields that are not there or of another type are refused") {
  CHECK(refusal("\n{\"u\": 1}\n", kText) ==
        "accel[0/1] load_json_lines: expected a field \"t\" in data.jsonl:2, found none; complete the object");
  for (const char* const name : {"/v/7", "/v/x", "/v/99999999999999999999"})
    CHECK(refusal("{\"v\": [1]}\n", {.fields = {{.name = name, .type = JsonType::kNumber}}}) ==
          std::string("accel[0/1] load_json_lines: expected a field \"") + name +
              "\" in data.jsonl:1, found none; complete the object");
  CHECK(refusal("{\"t\": 1}\n", kText) ==
        "accel[0/1] load_json_lines: expected a text as \"t\" in data.jsonl:1, found '1'; correct the line, or read "
        "the field as another JsonType or dtype");
  CHECK(refusal("{\"n\": \"1\"}\n", kNumber).find("expected a number as \"n\" in data.jsonl:1, found '\"1\"';") !=
        std::string::npos);
  CHECK(refusal("{\"n\": true}\n", kNumber).find("found 'true';") != std::string::npos);
  CHECK(refusal("{\"n\": null}\n", kNumber).find("found 'null';") != std::string::npos);
  CHECK(refusal("{\"n\": 1.5}\n", {.fields = {{.name = "n", .type = JsonType::kNumber, .dtype = at::kByte}}})
            .find("expected a whole number in 0 .. 255 as \"n\" in data.jsonl:1, found '1.5';") != std::string::npos);
  CHECK(refusal("{\"n\": 18446744073709551615}\n",
                {.fields = {{.name = "n", .type = JsonType::kNumber, .dtype = at::kLong}}})
            .find("found '18446744073709551615';") != std::string::npos);
  CHECK(refusal("{\"v\": [1, 2]}\n{\"v\": [1]}\n", kVector) ==
        "accel[0/1] load_json_lines: expected a list of 2 numbers, as before, as \"v\" in data.jsonl:2, found 1; give "
        "all lists one length, or read the field as JsonType::kNumberList");
  CHECK(refusal("{\"v\": [1, \"x\"]}\n", kVector)
            .find("expected a list with a number in each place as \"v\" in data.jsonl:1, found '\"x\"';") !=
        std::string::npos);
}

TEST_CASE("values inside each other, however deep, are refused in a few words") {
  CHECK(refusal("{\"t\": [1, [2]]}\n", kText).find("found a list of 2 values;") != std::string::npos);
  CHECK(refusal("{\"t\": {\"u\": {}}}\n", kText).find("found an object of 1 field;") != std::string::npos);
  constexpr std::size_t kDeep = 200000;
  const std::string deep = std::string(kDeep, '[') + std::string(kDeep, ']');
  CHECK(refusal("{\"t\": " + deep + "}\n", kText).find("in data.jsonl:1, found a list of 1 value;") !=
        std::string::npos);
  CHECK(refusal(deep + "\n", kText).find("expected a JSON object in data.jsonl:1, found a list of 1 value;") !=
        std::string::npos);
}

TEST_CASE("fields that cannot be meant are refused") {
  const auto misuse = [](const JsonLinesOptions& options) {
    return error_of<accel::UsageError>([&] { (void)load_json_lines("none.jsonl", options); });
  };
  CHECK(misuse({.fields = {}}) ==
        "accel[0/1] load_json_lines: expected fields in JsonLinesOptions, found none; name those to be read");
  CHECK(misuse({.fields = {{.name = "a"}, {.name = "a"}}}) ==
        "accel[0/1] load_json_lines: expected fields of different names, found \"a\" twice; name each once");
  CHECK(misuse({.fields = {{.name = "/a~x"}}}) ==
        "accel[0/1] load_json_lines: expected a JSON pointer in a name that begins with a slash, found \"/a~x\"; write "
        "~ in keys as ~0 and / as ~1");
}
