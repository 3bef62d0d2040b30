#pragma once

// What make_data_loader makes of a data set, for LoaderCore; programs do not name these.

#include <accel/dataset_kinds.hpp>
#include <accel/export.hpp>
#include <accel/foreign_loader.hpp>
#include <accel/loader_core.hpp>
#include <accel/tree.hpp>
#include <accel/tree_archive.hpp>

#include <c10/util/ArrayRef.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace accel::detail {

ACCEL_API void pin_tensor(at::Tensor& tensor);
/// @throws UsageError  always.
[[noreturn]] ACCEL_API void refuse_rows();

template <class D, class Collate>
using CollatedBy = std::remove_cvref_t<std::invoke_result_t<Collate&, RawOf<D>&&>>;

template <class T, class... Above>
constexpr bool can_be_read();

template <class T, class... Above>
constexpr bool can_be_new() {
  if constexpr (std::is_default_constructible_v<T>) return can_be_read<T, Above...>();
  return false;
}

template <class Tuple>
struct FieldsCanBeRead;
template <class... Parts>
struct FieldsCanBeRead<std::tuple<Parts...>> {
  template <class... Above>
  static constexpr bool all() {
    return (can_be_read<std::remove_cvref_t<Parts>, Above...>() && ...);
  }
};

/// Whether `unpack` can make the type out of bytes.
template <class T, class... Above>
constexpr bool can_be_read() {
  constexpr TreeKind kKind = kKindOf<T>;
  if constexpr ((std::is_same_v<T, Above> || ...))
    return true;
  else if constexpr (kKind == TreeKind::kFields)
    return FieldsCanBeRead<decltype(fields_of(std::declval<T&>()))>::template all<T, Above...>();
  else if constexpr (kKind == TreeKind::kMap)
    return can_be_new<typename T::key_type, T, Above...>() && can_be_new<typename T::mapped_type, T, Above...>();
  else if constexpr (kKind == TreeKind::kArray)
    return can_be_read<typename T::value_type, T, Above...>();
  else if constexpr (kKind == TreeKind::kOptional)
    return can_be_new<typename T::value_type, T, Above...>();
  else if constexpr (kKind == TreeKind::kSequence)
    return requires(T & list, typename T::value_type element) {
      list.insert(list.end(), std::move(element));
    }
  &&can_be_new<typename T::value_type, T, Above...>();
  else return kKind != TreeKind::kUnknown;
}

/// A data set and how its samples become a batch; a worker may have a copy.
template <class D, class Collate>
struct Reader {
  D dataset;
  Collate collate;

  auto batch(c10::ArrayRef<std::size_t> indices) {
    if constexpr (MapStyleDataset<D>) {
      return std::invoke(collate, dataset.get_batch(indices));
    } else {
      RawOf<D> samples;
      samples.reserve(indices.size());
      for (const std::size_t index : indices) samples.push_back(dataset.get(index));
      return std::invoke(collate, std::move(samples));
    }
  }
};

template <class Batch, class D, class Collate>
void add_index_ops(DatasetOps& ops, const std::shared_ptr<Reader<D, Collate>>& reader) {
  ops.fetch = [reader](bool copy) -> FetchBatch {
    std::shared_ptr<Reader<D, Collate>> mine = reader;
    if constexpr (std::copy_constructible<D> && std::copy_constructible<Collate>)
      if (copy) mine = std::make_shared<Reader<D, Collate>>(*reader);
    return
        [mine](c10::ArrayRef<std::size_t> indices) -> Parcel { return std::make_shared<Batch>(mine->batch(indices)); };
  };
}

/// The next samples of a range.
template <class D>
class RangeCursor {
 public:
  void restart(D& range) { at_.emplace(range_access::begin_of(range), range_access::end_of(range)); }
  std::optional<RawOf<D>> read(std::size_t count) {
    RawOf<D> samples;
    for (auto& [at, end] = *at_; samples.size() < count && at != end; ++at) samples.push_back(*at);
    return samples.empty() ? std::nullopt : std::optional(std::move(samples));
  }

 private:
  struct Place {
    Place(decltype(range_access::begin_of(std::declval<D&>())) first,
          decltype(range_access::end_of(std::declval<D&>())) last)
        : at(std::move(first)), end(std::move(last)) {}
    decltype(range_access::begin_of(std::declval<D&>())) at;
    decltype(range_access::end_of(std::declval<D&>())) end;
  };
  std::optional<Place> at_;
};

template <class D, class Collate>
void add_reading_ops(DatasetOps& ops, const std::shared_ptr<Reader<D, Collate>>& reader) {
  using Raw = RawOf<D>;
  if constexpr (StreamDataset<D>) {
    using Result = std::remove_cvref_t<decltype(reader->dataset.get_batch(std::size_t()))>;
    ops.endless = std::is_same_v<Result, Raw>;
    ops.restart = [reader] {
      if constexpr (requires { reader->dataset.reset(); }) reader->dataset.reset();
    };
    ops.read = [reader](std::size_t rows) -> Parcel {
      Result result = reader->dataset.get_batch(rows);
      if constexpr (std::is_same_v<Result, Raw>)
        return std::make_shared<Raw>(std::move(result));
      else
        return result ? std::make_shared<Raw>(std::move(*result)) : nullptr;
    };
  } else {
    const auto cursor = std::make_shared<RangeCursor<D>>();
    ops.restart = [reader, cursor] { cursor->restart(reader->dataset); };
    ops.read = [reader, cursor](std::size_t rows) -> Parcel {
      auto samples = cursor->read(rows);
      return samples ? std::make_shared<Raw>(std::move(*samples)) : nullptr;
    };
  }
}

/// Rows of what a stream gives. Single samples are counted one by one, whatever they are: a vector of tensors would
/// be a list of fields otherwise.
template <bool Samples, class Raw>
std::optional<std::int64_t> raw_rows(const Raw& raw) {
  if constexpr (Samples)
    return static_cast<std::int64_t>(raw.size());
  else
    return find_batch_size(raw);
}
template <bool Samples, class Raw>
Raw raw_slice(const Raw& raw, std::size_t begin, std::size_t end) {
  if constexpr (Samples)
    return Raw(raw.begin() + static_cast<std::ptrdiff_t>(begin), raw.begin() + static_cast<std::ptrdiff_t>(end));
  else
    return slice_tensors(raw, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end));
}
template <bool Samples, class Raw>
Raw raw_concatenation(const std::vector<Raw>& parts) {
  if constexpr (Samples) {
    Raw all;
    for (const Raw& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  } else {
    return concatenate(parts);
  }
}

template <class Batch, class D, class Collate>
void add_stream_ops(DatasetOps& ops, const std::shared_ptr<Reader<D, Collate>>& reader) {
  using Raw = RawOf<D>;
  constexpr bool kSamples = SampleRange<D>;
  const auto raw = [](const Parcel& parcel) -> Raw& { return *static_cast<Raw*>(parcel.get()); };
  add_reading_ops(ops, reader);
  ops.rows = [raw](const Parcel& parcel) {
    const auto rows = raw_rows<kSamples>(raw(parcel));
    if (!rows) refuse_rows();
    return static_cast<std::size_t>(*rows);
  };
  ops.slice = [raw](const Parcel& parcel, std::size_t begin, std::size_t end) -> Parcel {
    return std::make_shared<Raw>(raw_slice<kSamples>(raw(parcel), begin, end));
  };
  ops.concatenate = [raw](const std::vector<Parcel>& parcels) -> Parcel {
    std::vector<Raw> parts;
    for (const Parcel& parcel : parcels) parts.push_back(raw(parcel));
    return std::make_shared<Raw>(raw_concatenation<kSamples>(parts));
  };
  // A copy of the rows: the first ones of an epoch may be needed again.
  ops.collate = [reader, raw](const Parcel& parcel) -> Parcel {
    return std::make_shared<Batch>(std::invoke(reader->collate, Raw(raw(parcel))));
  };
}

template <class Batch, class D, class Collate>
DatasetOps dataset_ops(std::shared_ptr<Reader<D, Collate>> reader) {
  DatasetOps ops;
  if constexpr (HasSize<D>) ops.size = reader->dataset.size();
  if constexpr (MapStyleDataset<D> || IndexedDataset<D>)
    add_index_ops<Batch>(ops, reader);
  else
    add_stream_ops<Batch>(ops, reader);
  if constexpr (can_be_new<Batch>()) {
    ops.pack = [](const Parcel& batch) { return pack(*static_cast<const Batch*>(batch.get())); };
    ops.unpack = [](std::string_view bytes) -> Parcel {
      return std::make_shared<Batch>(unpack<Batch>(bytes, c10::DeviceType::CPU, "a batch of rank 0"));
    };
  }
  ops.pin = [](const Parcel& batch) {
    for_each_tensor(*static_cast<Batch*>(batch.get()), [](at::Tensor& tensor) { pin_tensor(tensor); });
  };
  return ops;
}

}  // namespace accel::detail
