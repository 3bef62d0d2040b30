#include <accel/data.hpp>

#include <ATen/ops/ones.h>
#include "support/torch_doctest.hpp"

#include <torch/data/example.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

using accel::to_device;

namespace {

// The meta device stands in for a GPU: tensors move there on every machine.
const c10::Device kElsewhere(c10::DeviceType::Meta);
const c10::Device kCpu(c10::DeviceType::CPU);

at::Tensor one() {
  return at::ones(3);
}
bool moved(const at::Tensor& tensor) {
  return tensor.device() == kElsewhere && tensor.numel() == 3;
}

enum class Kind { kA };
struct Nothing {};

struct Replay {
  at::Tensor state;
  std::vector<at::Tensor> actions;
  int horizon = 0;

  friend auto accel_fields(Replay& replay) { return std::tie(replay.state, replay.actions, replay.horizon); }
};

}  // namespace

TEST_CASE("tensors, examples, tuples, containers and optionals are placed, to any depth") {
  CHECK(moved(to_device(one(), kElsewhere)));
  const auto example = to_device(torch::data::Example<>(one(), one()), kElsewhere);
  CHECK((moved(example.data) && moved(example.target)));
  CHECK(moved(to_device(torch::data::TensorExample(one()), kElsewhere).data));
  CHECK(moved(to_device(std::pair(one(), 3), kElsewhere).first));
  CHECK(moved(std::get<2>(to_device(std::tuple(1, 2.0, one()), kElsewhere))));
  CHECK(moved(to_device(std::array<at::Tensor, 2>{one(), one()}, kElsewhere)[1]));
  CHECK(moved(to_device(std::vector<at::Tensor>{one(), one()}, kElsewhere)[1]));
  CHECK(moved(to_device(std::map<std::string, at::Tensor>{{"x", one()}}, kElsewhere).at("x")));
  CHECK(moved(to_device(std::unordered_map<std::string, at::Tensor>{{"x", one()}}, kElsewhere).at("x")));
  CHECK(moved(*to_device(std::optional(one()), kElsewhere)));
  CHECK_FALSE(to_device(std::optional<at::Tensor>(), kElsewhere).has_value());

  using Deep = std::map<std::string, std::vector<std::pair<std::optional<at::Tensor>, torch::data::Example<>>>>;
  const Deep deep = to_device(Deep{{"a", {{one(), {one(), one()}}}}}, kElsewhere);
  CHECK(moved(*deep.at("a")[0].first));
  CHECK(moved(deep.at("a")[0].second.target));
}

TEST_CASE("what holds no tensor is left as it is") {
  CHECK(to_device(3, kElsewhere) == 3);
  CHECK(to_device(std::string("text"), kElsewhere) == "text");
  CHECK(to_device(Kind::kA, kElsewhere) == Kind::kA);
  CHECK(to_device(std::vector<bool>{true, false}, kElsewhere) == std::vector<bool>{true, false});
  CHECK(to_device(std::map<std::string, double>{{"x", 1.5}}, kElsewhere).at("x") == 1.5);
  (void)to_device(Nothing{}, kElsewhere);
  CHECK_FALSE(to_device(at::Tensor(), kElsewhere).defined());
}

TEST_CASE("on the device already, tensors are the same ones") {
  const at::Tensor tensor = one();
  CHECK(to_device(tensor, kCpu).is_same(tensor));
  CHECK(to_device(std::vector{tensor}, kCpu)[0].is_same(tensor));
  CHECK(to_device(torch::data::Example<>(tensor, tensor), kCpu).target.is_same(tensor));
}

TEST_CASE("a type of the user's own is placed by its function, alone and inside other types") {
  const Replay batch = to_device(Replay{one(), {one(), one()}, 5}, kElsewhere);
  CHECK((moved(batch.state) && moved(batch.actions[1]) && batch.horizon == 5));
  CHECK(moved(to_device(std::vector<Replay>{{one(), {}, 1}}, kElsewhere)[0].state));
}

TEST_CASE("bound loaders place batches unless told not to") {
  struct Tensors {
    [[nodiscard]] at::Tensor get_batch(c10::ArrayRef<std::size_t>) const { return at::ones(3); }
    [[nodiscard]] std::size_t size() const { return 1; }
  };
  const auto active = std::make_shared<accel::detail::ActiveLoaders>();
  const auto loader = accel::make_data_loader(Tensors{});
  for (auto& batch : loader) CHECK(batch.device() == kCpu);
  for (auto& batch : loader.bind({.device = kElsewhere, .active = active})) CHECK(moved(batch));
  for (auto& batch : loader.bind({.device = kElsewhere, .device_placement = false, .active = active}))
    CHECK(batch.device() == kCpu);
}
