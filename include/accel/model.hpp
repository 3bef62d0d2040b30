#pragma once

#include <accel/export.hpp>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

// Models are recognised by their base class, which the program that has one includes itself.
namespace torch::nn {
class Module;
template <class>
class ModuleHolder;
}  // namespace torch::nn
namespace torch::jit {
struct Module;
}

namespace accel {

/// A tensor of a model with its dotted name, as in `layer1.0.weight`.
struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// Tensors that are trained without a module around them. Copies refer to the same list.
class ACCEL_API NamedParameters {
 public:
  explicit NamedParameters(std::vector<NamedTensor> tensors);
  [[nodiscard]] std::vector<NamedTensor>& tensors() const { return *tensors_; }

 private:
  std::shared_ptr<std::vector<NamedTensor>> tensors_;
};

/// `accel::parameters({{"log_alpha", log_alpha}})`: a model made of these leaf tensors.
ACCEL_API NamedParameters parameters(std::vector<NamedTensor> tensors);

/// The customisation point for model classes of your own: specialise it with
/// `static std::vector<NamedTensor> parameters(const M&)` and, if it has any, `static ... buffers(const M&)`.
template <class M>
struct ModelTraits;

namespace detail {

/// How to reach the tensors of one kind of model.
struct ModelAccess {
  std::vector<NamedTensor> (*parameters)(void* object);
  std::vector<NamedTensor> (*buffers)(void* object);
  /// Names of parameters whose gradients would be sparse.
  std::vector<std::string> (*sparse)(void* object);
};

ACCEL_API const ModelAccess& module_access();
ACCEL_API std::vector<std::string> nothing_sparse(void* object);

template <class M>
concept NnModule = std::is_base_of_v<torch::nn::Module, M>;

template <class M>
concept HasModelTraits = requires(const M& model) {
  ModelTraits<std::remove_cv_t<M>>::parameters(model);
};

template <class M>
std::vector<NamedTensor> traits_parameters(void* object) {
  return ModelTraits<M>::parameters(*static_cast<const M*>(object));
}
template <class M>
std::vector<NamedTensor> traits_buffers(void* object) {
  if constexpr (requires(const M& model) { ModelTraits<M>::buffers(model); })
    return ModelTraits<M>::buffers(*static_cast<const M*>(object));
  else
    return {};
}
template <class M>
inline constexpr ModelAccess kTraitsAccess{&traits_parameters<M>, &traits_buffers<M>, &nothing_sparse};

}  // namespace detail

/// Refers to anything that has named parameters and buffers: a module holder, a `shared_ptr` to a module, a module by
/// reference or pointer (the caller keeps it alive), a `torch::jit::Module`, `accel::parameters(...)`, or a class with
/// ModelTraits (by reference; the caller keeps it alive). Two references are the same model if they reach the same
/// object.
class ACCEL_API ModelRef {
 public:
  template <detail::NnModule M>
  ModelRef(M& module)  // NOLINT(google-explicit-constructor): models convert where a model is wanted
      : ModelRef(static_cast<torch::nn::Module*>(const_cast<std::remove_const_t<M>*>(&module)), nullptr) {}
  template <detail::NnModule M>
  ModelRef(M* module)  // NOLINT(google-explicit-constructor)
      : ModelRef(static_cast<torch::nn::Module*>(const_cast<std::remove_const_t<M>*>(module)), nullptr) {}
  template <detail::NnModule M>
  ModelRef(const std::shared_ptr<M>& module)  // NOLINT(google-explicit-constructor)
      : ModelRef(static_cast<torch::nn::Module*>(module.get()), module) {}
  template <class M>
  ModelRef(const torch::nn::ModuleHolder<M>& holder)  // NOLINT(google-explicit-constructor)
      : ModelRef(static_cast<torch::nn::Module*>(holder.ptr().get()), holder.ptr()) {}
  ModelRef(const torch::jit::Module& module);   // NOLINT(google-explicit-constructor)
  ModelRef(const NamedParameters& parameters);  // NOLINT(google-explicit-constructor)
  template <detail::HasModelTraits M>
  ModelRef(M& model)  // NOLINT(google-explicit-constructor)
      : key_(&model),
        object_(const_cast<std::remove_const_t<M>*>(&model)),
        access_(&detail::kTraitsAccess<std::remove_const_t<M>>) {}

  /// What tells models apart.
  [[nodiscard]] const void* key() const { return key_; }

  [[nodiscard]] std::vector<NamedTensor> parameters() const { return access_->parameters(object_); }
  [[nodiscard]] std::vector<NamedTensor> buffers() const { return access_->buffers(object_); }
  [[nodiscard]] std::vector<std::string> sparse_parameters() const { return access_->sparse(object_); }

 private:
  ModelRef(torch::nn::Module* module, std::shared_ptr<void> keep_alive);

  const void* key_ = nullptr;
  void* object_ = nullptr;
  const detail::ModelAccess* access_ = nullptr;
  std::shared_ptr<void> keep_alive_;
};

/// Anything a ModelRef can be made of.
template <class T>
concept Model = std::is_constructible_v<ModelRef, T&>;

}  // namespace accel
