#include <accel/model.hpp>

#include "core/message.hpp"
#include "runtime/session.hpp"

#include <accel/error.hpp>

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>

#include <utility>

namespace accel {

NamedParameters::NamedParameters(std::vector<NamedTensor> tensors)
    : tensors_(std::make_shared<std::vector<NamedTensor>>(std::move(tensors))) {}

NamedParameters parameters(std::vector<NamedTensor> tensors) {
  return NamedParameters(std::move(tensors));
}

namespace detail {
namespace {

std::vector<NamedTensor> listed(const torch::OrderedDict<std::string, at::Tensor>& dict) {
  std::vector<NamedTensor> tensors;
  tensors.reserve(dict.size());
  for (const auto& item : dict)
    if (item.value().defined()) tensors.push_back({item.key(), item.value()});
  return tensors;
}

std::vector<NamedTensor> module_parameters(void* object) {
  return listed(static_cast<torch::nn::Module*>(object)->named_parameters());
}

std::vector<NamedTensor> module_buffers(void* object) {
  return listed(static_cast<torch::nn::Module*>(object)->named_buffers());
}

std::vector<std::string> module_sparse(void* object) {
  std::vector<std::string> names;
  const auto* root = static_cast<torch::nn::Module*>(object);
  const auto check = [&names](const std::string& path, const torch::nn::Module& module) {
    const auto* embedding = dynamic_cast<const torch::nn::EmbeddingImpl*>(&module);
    const auto* bag = dynamic_cast<const torch::nn::EmbeddingBagImpl*>(&module);
    if ((embedding != nullptr && embedding->options.sparse()) || (bag != nullptr && bag->options.sparse()))
      names.push_back(path.empty() ? "weight" : path + ".weight");
  };
  check("", *root);
  for (const auto& child : root->named_modules(std::string(), /*include_self=*/false))
    check(child.key(), *child.value());
  return names;
}

std::vector<NamedTensor> list_parameters(void* object) {
  return *static_cast<std::vector<NamedTensor>*>(object);
}

std::vector<NamedTensor> no_tensors(void* /*object*/) {
  return {};
}

template <class List>
std::vector<NamedTensor> jit_tensors(const List& list) {
  std::vector<NamedTensor> tensors;
  for (const auto& item : list) tensors.push_back({item.name, item.value});
  return tensors;
}

std::vector<NamedTensor> jit_parameters(void* object) {
  return jit_tensors(static_cast<torch::jit::Module*>(object)->named_parameters());
}

std::vector<NamedTensor> jit_buffers(void* object) {
  return jit_tensors(static_cast<torch::jit::Module*>(object)->named_buffers());
}

constexpr ModelAccess kListAccess{&list_parameters, &no_tensors, &nothing_sparse};
constexpr ModelAccess kJitAccess{&jit_parameters, &jit_buffers, &nothing_sparse};

}  // namespace

std::vector<std::string> nothing_sparse(void* /*object*/) {
  return {};
}

const ModelAccess& module_access() {
  static constexpr ModelAccess access{&module_parameters, &module_buffers, &module_sparse};
  return access;
}

}  // namespace detail

ModelRef::ModelRef(torch::nn::Module* module, std::shared_ptr<void> keep_alive)
    : key_(module), object_(module), access_(&detail::module_access()), keep_alive_(std::move(keep_alive)) {
  if (module == nullptr)
    throw UsageError(detail::message(detail::job_site(), "ModelRef",
                                     "expected a module, found a null pointer; make the module first"));
}

// A torch::jit::Module is a handle that is passed by value: what it refers to is the model.
ModelRef::ModelRef(const torch::jit::Module& module)
    : key_(module._ivalue().get()),
      access_(&detail::kJitAccess),
      keep_alive_(std::make_shared<torch::jit::Module>(module)) {
  object_ = keep_alive_.get();
}

ModelRef::ModelRef(const NamedParameters& parameters)
    : key_(&parameters.tensors()),
      object_(&parameters.tensors()),
      access_(&detail::kListAccess),
      keep_alive_(std::make_shared<NamedParameters>(parameters)) {}

}  // namespace accel
