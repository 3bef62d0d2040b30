// Trees of tensors: what they are made of, their rows, and how they become one.
#include <accel/error.hpp>
#include <accel/tree.hpp>

#include "support/rank_expect.hpp"
#include "support/torch_doctest.hpp"

#include <ATen/ATen.h>
#include <torch/data/example.h>

#include <array>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

using namespace accel;
using accel::test::contains;
using accel::test::error_text;

namespace {

using Example = torch::data::Example<>;

struct Replay {
  at::Tensor state;
  std::vector<at::Tensor> actions;
  int horizon = 0;
};
auto accel_fields(Replay& replay) {
  return std::tie(replay.state, replay.actions, replay.horizon);
}

struct Node {  // holds itself
  at::Tensor value;
  std::vector<Node> children;
  friend auto accel_fields(Node& node) { return std::tie(node.value, node.children); }
};

at::Tensor number(double value) {
  return at::full({}, value);
}
at::Tensor rows(std::vector<double> values) {
  return at::tensor(values, at::kFloat);
}
std::vector<double> values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kDouble).contiguous().view({-1});
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}
using List = std::vector<double>;

template <class T>
List in_order(const T& tree) {
  List found;
  for_each_tensor(tree, [&found](const at::Tensor& tensor) { found.push_back(tensor.item<double>()); });
  return found;
}

}  // namespace

TEST_CASE("tensors are visited in the order of members, elements and keys") {
  CHECK(in_order(number(1)) == List{1});
  CHECK(in_order(Example(number(1), number(2))) == List{1, 2});
  CHECK(in_order(torch::data::TensorExample(number(3))) == List{3});
  CHECK(in_order(std::tuple(number(1), 7, std::string("x"), std::pair(number(2), number(3)))) == List{1, 2, 3});
  CHECK(in_order(std::array<at::Tensor, 2>{number(1), number(2)}) == List{1, 2});
  CHECK(in_order(std::deque<std::optional<at::Tensor>>{number(1), std::nullopt, number(2)}) == List{1, 2});
  CHECK(in_order(std::map<std::string, at::Tensor>{{"b", number(2)}, {"a", number(1)}}) == List{1, 2});
  CHECK(in_order(Replay{number(1), {number(2), number(3)}, 5}) == List{1, 2, 3});
  CHECK(in_order(Node{number(1), {{number(2), {{number(3), {}}}}, {number(4), {}}}}) == List{1, 2, 3, 4});
  CHECK(in_order(std::vector<bool>{true}).empty());
  std::unordered_map<int, at::Tensor> many;
  List sorted;
  for (int key = 99; key >= 0; --key) many[key * 7919 % 100] = number(key * 7919 % 100);
  for (int key = 0; key < 100; ++key) sorted.push_back(key);
  CHECK(in_order(many) == sorted);
}

TEST_CASE("tensors of a tree can be replaced; those of a const one are read only") {
  Replay replay{number(1), {number(2)}, 5};
  for_each_tensor(replay, [](at::Tensor& tensor) { tensor = tensor + 10; });
  CHECK(in_order(replay) == List{11, 12});
  int undefined = 0;
  const Example half(number(1), at::Tensor());
  for_each_tensor(half, [&](auto& tensor) {
    static_assert(std::is_same_v<decltype(tensor), const at::Tensor&>);
    undefined += tensor.defined() ? 0 : 1;
  });
  CHECK(undefined == 1);
}

TEST_CASE("the batch size is that of the first part that has rows") {
  CHECK(find_batch_size(at::ones({5, 2})) == 5);
  CHECK(find_batch_size(number(1)) == std::nullopt);
  CHECK(find_batch_size(std::tuple(7, std::string("text"), number(1))) == std::nullopt);
  CHECK(find_batch_size(std::tuple(7, number(1), at::Tensor(), at::ones({4}), at::ones({3}))) == 4);
  CHECK(find_batch_size(std::vector<at::Tensor>{at::ones({3, 1}), at::ones({9})}) == 3);
  CHECK(find_batch_size(std::vector<Example>(6)) == 6);
  CHECK(find_batch_size(std::vector<double>{}) == 0);
  CHECK(find_batch_size(std::map<std::string, std::vector<std::string>>{{"text", {"a", "b"}}}) == 2);
  CHECK(find_batch_size(std::array<double, 3>{}) == std::nullopt);
  CHECK(find_batch_size(Replay{at::Tensor(), {at::ones({8})}, 1}) == 8);
}

TEST_CASE("batches are concatenated leaf by leaf: tensors and rows grow, the rest is equal") {
  CHECK(values(concatenate<at::Tensor>({rows({1, 2}), rows({}), rows({3})})) == List{1, 2, 3});
  CHECK(values(concatenate<at::Tensor>({number(1), number(2)})) == List{1, 2});
  const auto replay =
      concatenate<Replay>({{rows({1}), {rows({2}), rows({3})}, 5}, {rows({4}), {rows({5}), rows({6})}, 5}});
  CHECK(values(replay.state) == List{1, 4});
  CHECK(values(replay.actions.at(0)) == List{2, 5});
  CHECK(values(replay.actions.at(1)) == List{3, 6});
  CHECK(replay.horizon == 5);
  using Mixed = std::tuple<std::vector<std::string>, std::vector<bool>, std::map<std::string, std::vector<double>>>;
  const auto mixed = concatenate<Mixed>({{{"a"}, {true}, {{"x", {1.0}}}}, {{"b", "c"}, {false}, {{"x", {2.0}}}}});
  CHECK(mixed == Mixed{{"a", "b", "c"}, {true, false}, {{"x", {1.0, 2.0}}}});
  CHECK(concatenate<std::vector<Example>>({std::vector<Example>(2), std::vector<Example>(3)}).size() == 5);
  CHECK_FALSE(concatenate<at::Tensor>({at::Tensor(), at::Tensor()}).defined());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(std::get<1>(concatenate<std::pair<at::Tensor, double>>({{rows({1}), nan}, {rows({2}), nan}})) != 0.0);
  CHECK(values(*concatenate<std::optional<at::Tensor>>({rows({1}), rows({2})})) == List{1, 2});
}

TEST_CASE("what was concatenated is not touched, and its graph is kept") {
  const at::Tensor weight = at::ones({2}).requires_grad_(true);
  const std::vector<std::vector<at::Tensor>> parts{{weight * 2}, {weight * 3}};
  concatenate(parts)[0].sum().backward();
  CHECK(values(weight.grad()) == List{5, 5});
  CHECK(parts[0][0].size(0) == 2);
}

TEST_CASE("trees that do not fit are refused with what differs") {
  const auto text = [](auto call) { return error_text<UsageError>(call); };
  CHECK(contains(text([] { (void)concatenate(std::vector<at::Tensor>{}); }), "concatenate: expected at least one"));
  CHECK(contains(text([] {
                   (void)concatenate<at::Tensor>({at::ones({2, 3}), at::ones({2, 4})});
                 }),
                 "found Float [2, 3] on cpu in tree 0 and Float [2, 4] on cpu in tree 1; convert or pad"));
  CHECK(contains(text([] { (void)concatenate<at::Tensor>({at::ones({2}), at::ones({2}, at::kLong)}); }), "Long [2]"));
  CHECK(contains(text([] { (void)concatenate<at::Tensor>({at::ones({2}), at::Tensor()}); }), "an undefined tensor"));
  CHECK(contains(text([] { (void)concatenate<at::Tensor>({at::ones({2}), number(1)}); }), "Float [] on cpu"));
  CHECK(contains(text([] { (void)concatenate<Replay>({{rows({1}), {}, 5}, {rows({1}), {}, 6}}); }), "tree 1 differs"));
  CHECK(contains(text([] { (void)concatenate<std::string>({"a", "a", "b"}); }), "tree 2 differs from tree 0"));
  CHECK(contains(text([] { (void)concatenate<std::vector<at::Tensor>>({{rows({1})}, {}}); }), "list of fields"));
  CHECK(contains(text([] { (void)concatenate<std::optional<int>>({1, std::nullopt}); }), "a value is there"));
  using Map = std::map<std::string, at::Tensor>;
  CHECK(contains(text([] { (void)concatenate<Map>({{{"a", rows({1})}}, {{"b", rows({1})}}}); }), "keys of a map"));
  CHECK(contains(text([] { (void)concatenate<Map>({{{"a", rows({1})}}, {}}); }), "number of keys"));
}

TEST_CASE("slices are rows of every part; an end behind the last row is the last row") {
  using Batch = std::tuple<at::Tensor, std::vector<std::string>, std::vector<at::Tensor>, at::Tensor, int, Replay>;
  const at::Tensor data = at::arange(10).view({5, 2});
  const Batch batch{data, {"a", "b", "c", "d", "e"}, {data, data}, number(7), 9, {data, {data}, 3}};
  const Batch middle = slice_tensors(batch, 1, 3);
  CHECK(values(std::get<0>(middle)) == List{2, 3, 4, 5});
  CHECK(std::get<0>(middle).is_alias_of(data));
  CHECK(std::get<1>(middle) == std::vector<std::string>{"b", "c"});
  CHECK(std::get<2>(middle).at(1).size(0) == 2);
  CHECK(std::get<3>(middle).dim() == 0);
  CHECK(std::get<4>(middle) == 9);
  CHECK(std::get<5>(middle).actions.at(0).size(0) == 2);
  CHECK(std::get<0>(batch).size(0) == 5);
  const Batch last = slice_tensors(batch, 4, 8);
  CHECK(std::get<0>(last).size(0) == 1);
  CHECK(std::get<1>(last) == std::vector<std::string>{"e"});
  const Batch none = slice_tensors(batch, 6, 8);
  CHECK(std::get<0>(none).size(0) == 0);
  CHECK(std::get<1>(none).empty());
  CHECK(contains(error_text<UsageError>([&] { (void)slice_tensors(batch, 3, 2); }), "found [3, 2)"));
  CHECK(contains(error_text<UsageError>([&] { (void)slice_tensors(batch, -1, 2); }), "0 <= begin"));
}

TEST_CASE("slices of a concatenation are what was concatenated") {
  const std::vector<Example> parts{{rows({1, 2}), rows({3, 4})}, {rows({5}), rows({6})}};
  const Example whole = concatenate(parts);
  CHECK(values(slice_tensors(whole, 2, 3).target) == List{6});
  CHECK(values(slice_tensors(whole, 0, 2).data) == List{1, 2});
}

TEST_CASE("samples are stacked to a batch of their type") {
  const Example batch =
      stack<Example>({{rows({1, 2}), number(0)}, {rows({3, 4}), number(1)}, {rows({5, 6}), number(2)}});
  CHECK(batch.data.sizes() == at::IntArrayRef({3, 2}));
  CHECK(values(batch.data) == List{1, 2, 3, 4, 5, 6});
  CHECK(values(batch.target) == List{0, 1, 2});
  using Sample = std::map<std::string, std::vector<std::optional<at::Tensor>>>;
  const Sample deep = stack<Sample>({{{"x", {number(1), std::nullopt}}}, {{"x", {number(2), std::nullopt}}}});
  CHECK(values(*deep.at("x").at(0)) == List{1, 2});
  CHECK_FALSE(deep.at("x").at(1).has_value());
  CHECK(contains(error_text<UsageError>([] {
                   (void)stack<at::Tensor>({at::ones({2}), at::ones({3})});
                 }),
                 "found Float [2] on cpu in tree 0 and Float [3] on cpu in tree 1; pad or convert them in a collate"));
  CHECK(contains(error_text<UsageError>([] { (void)stack(std::vector<Example>{}); }), "stack: expected at least one"));
}

TEST_CASE("leaves of types are known while compiling") {
  using accel::detail::kOnlyTensors;
  static_assert(kOnlyTensors<Example> && kOnlyTensors<Node> && kOnlyTensors<std::map<int, std::vector<at::Tensor>>>);
  static_assert(!kOnlyTensors<Replay> && !kOnlyTensors<std::string> &&
                !kOnlyTensors<std::vector<std::pair<at::Tensor, int>>>);
}
