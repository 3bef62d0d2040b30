#pragma once

// What the tests of data sets share.

#include <accel/data.hpp>
#include <accel/error.hpp>

#include "support/error_text.hpp"
#include "support/torch_doctest.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace accel::test {

/// The text of the error of type `E` that `call` throws, without `folder` in it.
template <class E, class F>
std::string error_of(F&& call, const std::string& folder = {}) {
  std::string text = error_text<E>(call);
  for (std::size_t at = 0; !folder.empty() && (at = text.find(folder + "/")) != std::string::npos;)
    text.erase(at, folder.size() + 1);
  return text;
}

/// The batches of one shuffled pass.
template <class Dataset>
auto batches_of(const Dataset& dataset, std::size_t workers) {
  std::vector<typename Dataset::BatchType> batches;
  const auto loader = make_data_loader(dataset, {.batch_size = 3, .shuffle = true, .seed = 7, .num_workers = workers});
  for (auto& batch : loader) batches.push_back(std::move(batch));
  return batches;
}

template <class T>
std::vector<T> values(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.contiguous();
  const T* const first = dense.template const_data_ptr<T>();
  return std::vector<T>(first, first + dense.numel());
}

template <class... Bytes>
std::string bytes(Bytes... values) {
  return {static_cast<char>(values)...};
}

}  // namespace accel::test
