#pragma once

// What DataLoader is made of, apart from the type of its batches; programs do not name these.

#include <accel/data_options.hpp>
#include <accel/export.hpp>
#include <accel/loader_binding.hpp>
#include <accel/prefetcher.hpp>

#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace accel::detail {

/// One batch of a map-style data set, collated, as a parcel.
using FetchBatch = std::function<Parcel(c10::ArrayRef<std::size_t>)>;

/// What the core asks of a data set whose types only make_data_loader knows.
struct DatasetOps {
  std::optional<std::size_t> size = std::nullopt;

  // Map-style. Called for the program's own thread, and once for each worker: a copy of the data set, where there can
  // be one.
  std::function<FetchBatch(bool copy)> fetch = {};

  // Streams, whose parcels are rows as they were read.
  std::function<void()> restart = {};
  std::function<Parcel(std::size_t rows)> read = {};  ///< null at the end; may give less than asked
  std::function<std::size_t(const Parcel&)> rows = {};
  std::function<Parcel(const std::vector<Parcel>&)> concatenate = {};
  std::function<Parcel(const Parcel&, std::size_t begin, std::size_t end)> slice = {};
  std::function<Parcel(const Parcel&)> collate = {};
  bool endless = false;  ///< `read` has no way to say that nothing is left

  // Of batches. Empty where they hold something that cannot be sent.
  std::function<std::string(const Parcel&)> pack = {};
  std::function<Parcel(std::string_view)> unpack = {};
  std::function<void(const Parcel&)> pin = {};  ///< replaces tensors by page-locked copies

  [[nodiscard]] bool stream() const { return fetch == nullptr; }
};

class LoaderState;
struct LoaderPassState;

/// One pass of a DataLoader.
class ACCEL_API LoaderPassCore {
 public:
  explicit LoaderPassCore(std::unique_ptr<LoaderPassState> state);
  LoaderPassCore(LoaderPassCore&&) noexcept;
  LoaderPassCore& operator=(LoaderPassCore&&) = delete;
  ~LoaderPassCore();

  [[nodiscard]] bool done() const;
  /// Hands out the next batch.
  [[nodiscard]] Parcel read();
  [[nodiscard]] std::optional<BatchRows> rows() const;
  /// What to say if this pass trains outside a join guard; empty if nothing.
  [[nodiscard]] std::string uneven() const;
  /// The loop ran to its end: the loader stands at the next epoch.
  void exhausted();

 private:
  std::unique_ptr<LoaderPassState> state_;
};

/// All of a DataLoader that does not depend on the type of its batches. A handle.
class ACCEL_API LoaderCore {
 public:
  /// @throws UsageError  an option is out of range, contradicts another one, or does not fit the data set (names them).
  LoaderCore(DatasetOps ops, const DataLoaderOptions& options);

  /// @throws UsageError  fewer batches than ranks; batch_size that ranks cannot split; batches that cannot be sent.
  [[nodiscard]] LoaderCore bind(const LoaderBinding& binding) const;

  /// The same loader, whose first pass leaves out so many batches.
  [[nodiscard]] LoaderCore skip_first(std::int64_t batches) const;

  [[nodiscard]] const LoaderBinding& binding() const;
  [[nodiscard]] const DataLoaderOptions& options() const;
  [[nodiscard]] std::size_t samples() const;
  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] bool has_size() const;
  [[nodiscard]] std::size_t remainder() const;
  [[nodiscard]] std::int64_t epoch() const;
  void set_epoch(std::int64_t epoch) const;
  [[nodiscard]] DataLoaderState state_dict() const;
  void load_state_dict(const DataLoaderState& state) const;
  [[nodiscard]] LoaderPassCore start_pass() const;

 private:
  explicit LoaderCore(std::shared_ptr<LoaderState> state);
  std::shared_ptr<LoaderState> state_;
};

}  // namespace accel::detail
