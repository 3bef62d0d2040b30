// Trees as bytes, and back.
#include <accel/error.hpp>
#include <accel/tree_archive.hpp>

#include "support/rank_expect.hpp"
#include "support/torch_doctest.hpp"

#include <ATen/ATen.h>
#include <torch/data/example.h>

#include <array>
#include <complex>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

using namespace accel;
using accel::detail::pack;
using accel::detail::structure_of;
using accel::test::contains;
using accel::test::error_text;

namespace {

enum class Kind : std::uint8_t { kA, kB };
struct Nothing {
  friend bool operator==(const Nothing&, const Nothing&) { return true; }
};
struct Replay {
  at::Tensor state;
  Kind kind = Kind::kA;
  std::vector<std::string> names;
  friend auto accel_fields(Replay& replay) { return std::tie(replay.state, replay.kind, replay.names); }
};
struct Node {
  int value = 0;
  std::vector<Node> children;
  friend auto accel_fields(Node& node) { return std::tie(node.value, node.children); }
  friend bool operator==(const Node& a, const Node& b) { return a.value == b.value && a.children == b.children; }
};

template <class T>
T unpack(std::string_view bytes) {
  return accel::detail::unpack<T>(bytes, c10::kCPU, "rank 3");
}
template <class T>
T through(const T& tree) {
  return unpack<T>(pack(tree));
}
template <class T>
bool survives(const T& tree) {
  return through(tree) == tree;
}
bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         at::equal(a.contiguous().view({-1}).view(at::kByte), b.contiguous().view({-1}).view(at::kByte));
}

}  // namespace

TEST_CASE("numbers, texts and containers of them come back") {
  CHECK(survives(-7));
  CHECK(survives(1e300));
  CHECK(survives(true));
  CHECK(survives('x'));
  CHECK(survives(Kind::kB));
  CHECK(survives(std::complex<float>(1, -2)));
  CHECK((survives(c10::BFloat16(1.5F)) && survives(c10::Half(2.5F))));
  CHECK(survives(std::string("text\0with a zero", 16)));
  CHECK(survives(std::string()));
  CHECK(survives(std::vector<double>{1.5, -2.5}));
  CHECK(survives(std::vector<bool>{true, false, true}));
  CHECK(survives(std::vector<Nothing>(3)));
  CHECK(survives(std::vector<std::tuple<>>(2)));
  CHECK(survives(std::deque<std::string>{"a", "", "c"}));
  CHECK(survives(std::list<std::int8_t>{1, -1}));
  CHECK(survives(std::set<std::string>{"b", "a"}));
  CHECK(survives(std::array<double, 3>{1, 2, 3}));
  CHECK(survives(std::map<std::string, std::vector<int>>{{"a", {1}}, {"b", {}}}));
  CHECK(survives(std::unordered_map<int, std::optional<std::string>>{{1, "x"}, {2, std::nullopt}}));
  CHECK(survives(std::tuple<int, std::pair<bool, std::string>, Nothing>(1, {true, "x"}, {})));
  CHECK(survives(Node{1, {{2, {{3, {}}}}, {4, {}}}}));
}

TEST_CASE("tensors of all dtypes come back with their bits, however they lie in memory") {
  for (const auto dtype : {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf, at::kBFloat16, at::kFloat,
                           at::kDouble, at::kBool, at::kComplexFloat, at::kComplexDouble}) {
    INFO(c10::toString(dtype));
    const at::Tensor tensor = at::arange(6).sub(2).to(dtype).view({2, 3});
    CHECK(same_bits(through(tensor), tensor));
    CHECK(same_bits(through(tensor.t()), tensor.t().contiguous()));
    CHECK(same_bits(through(tensor.select(0, 1).select(0, 2)), tensor[1][2]));
    CHECK(same_bits(through(tensor.slice(0, 0, 0)), tensor.slice(0, 0, 0)));
  }
  const at::Tensor complex = at::complex(at::ones({2}), at::ones({2}));
  CHECK(same_bits(through(complex.conj()), at::complex(at::ones({2}), -at::ones({2}))));
  CHECK_FALSE(through(at::Tensor()).defined());
  CHECK_FALSE(through(at::ones({1}).requires_grad_(true)).requires_grad());
  const Replay replay = through(Replay{at::ones({2}), Kind::kB, {"x", "yz"}});
  CHECK(same_bits(replay.state, at::ones({2})));
  CHECK((replay.kind == Kind::kB && replay.names == std::vector<std::string>{"x", "yz"}));
}

TEST_CASE("what comes back stands on the device asked for") {
  const c10::Device elsewhere(c10::DeviceType::Meta);
  CHECK((accel::detail::unpack<at::Tensor>(pack(at::ones({3})), elsewhere).device() == elsewhere));
}

TEST_CASE("structures have names that tell types apart which cannot be read as each other") {
  CHECK(structure_of<Replay>() == "(tensor, enum uint8, list<text>)");
  CHECK(structure_of<torch::data::Example<>>() == "(tensor, tensor)");
  CHECK(structure_of<Node>() == "(int32, list<itself>)");
  CHECK(structure_of<std::map<std::string, std::optional<bool>>>() == "map<text, optional<bool8>>");
  CHECK(structure_of<std::array<float, 3>>() == "3<float32>");
  CHECK(structure_of<std::deque<double>>() == structure_of<std::vector<double>>());
  CHECK(structure_of<c10::Half>() != structure_of<c10::BFloat16>());
}

TEST_CASE("bytes of another type, or cut short, or with more behind them, are refused") {
  CHECK(contains(error_text<UsageError>([] { (void)unpack<int>(pack(std::string("x"))); }),
                 "found that of rank 3 to be text and this rank's int32"));
  CHECK(contains(error_text<UsageError>([] { (void)unpack<int>("something else entirely"); }), "of something else"));
  const std::tuple<std::vector<double>, std::string, at::Tensor, std::map<int, bool>> tree{
      {1, 2}, "abc", at::ones({2, 2}), {{1, true}}};
  const std::string bytes = pack(tree);
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    INFO("length ", length);
    CHECK(error_text<UsageError>([&] {
            (void)unpack<std::remove_const_t<decltype(tree)>>(std::string_view(bytes).substr(0, length));
          }).find("accel[0/1] unpack: expected") == 0);
  }
  CHECK(contains(error_text<UsageError>([&] { (void)unpack<std::remove_const_t<decltype(tree)>>(bytes + "x"); }),
                 "more than a tree"));
}

TEST_CASE("whatever bytes are spoiled, reading ends with a value or a UsageError") {
  const std::pair<std::vector<std::string>, at::Tensor> tree{{"abc", "d"}, at::ones({2, 2})};
  const std::string bytes = pack(tree);
  int refused = 0;
  for (std::size_t at = 0; at < bytes.size(); ++at)
    for (const char change : {'\x01', '\x7f', '\xff'}) {
      std::string spoiled = bytes;
      spoiled[at] = static_cast<char>(spoiled[at] ^ change);
      try {
        (void)unpack<std::remove_const_t<decltype(tree)>>(spoiled);
      } catch (const UsageError&) {
        ++refused;
      }
    }
  CHECK(refused > 100);
}

TEST_CASE("a tensor that cannot travel is refused") {
  CHECK(contains(error_text<UsageError>([] { (void)pack(at::ones({2}).to_sparse()); }), "expected dense tensors"));
}
