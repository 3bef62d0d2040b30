#include "conformance.hpp"

#include "comm/ops.hpp"

#include <accel/error.hpp>

#include <cmath>

namespace accel::test {

at::Tensor tensor_of(std::int64_t numel, at::ScalarType dtype, Layout layout, const Subject& subject) {
  const auto options = at::TensorOptions(dtype).device(subject.device);
  switch (layout) {
    case Layout::kTransposed:
      return at::zeros({2, numel / 2}, options).t();
    case Layout::kStrided:
      return at::zeros({numel, 3}, options).select(1, 1);
    default:
      return at::zeros({numel}, options);
  }
}

namespace {

// Values repeat after this many elements, so that expectations for large tensors cost no time.
constexpr std::int64_t kPeriod = 42;

at::Tensor period_of(int rank, at::ScalarType dtype, ReduceOp op) {
  const at::Tensor index = at::arange(kPeriod, at::kLong);
  if (dtype == at::kBool) return ((index + rank) % 3 == 0).to(dtype);
  if (op == ReduceOp::kProduct) return (index % 2 + 1 + rank % 2).to(dtype);
  return (index % 7 + 1 + rank).to(dtype);
}

at::Tensor repeated(const at::Tensor& period, const at::Tensor& like) {
  return period.repeat({like.numel() / kPeriod + 1}).narrow(0, 0, like.numel()).reshape(like.sizes());
}

at::Tensor reduced_period(at::ScalarType dtype, ReduceOp op, int ranks) {
  std::vector<at::Tensor> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(period_of(rank, dtype, op).to(at::kDouble));
  const at::Tensor stacked = at::stack(all);
  const bool truth = dtype == at::kBool;
  switch (op) {
    case ReduceOp::kSum:
      return truth ? stacked.amax(0) : stacked.sum(0);
    case ReduceOp::kAvg:
      return stacked.sum(0) / ranks;
    case ReduceOp::kMin:
      return stacked.amin(0);
    case ReduceOp::kMax:
      return stacked.amax(0);
    case ReduceOp::kProduct:
      return truth ? stacked.amin(0) : stacked.prod(0);
  }
  return {};
}

}  // namespace

at::Tensor values_of(int rank, const at::Tensor& like, ReduceOp op) {
  return repeated(period_of(rank, like.scalar_type(), op), like).to(like.device());
}

at::Tensor reduced(const at::Tensor& like, ReduceOp op, int ranks) {
  return repeated(reduced_period(like.scalar_type(), op, ranks).to(like.scalar_type()), like);
}

std::vector<ReduceOp> ops_for(at::ScalarType dtype) {
  std::vector<ReduceOp> ops{ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct};
  if (at::isFloatingType(dtype)) ops.push_back(ReduceOp::kAvg);
  return ops;
}

// Around the ends of the pieces that large buffers are cut into, whatever the size of an element.
std::vector<std::int64_t> border_sizes(std::int64_t element, int ranks) {
  std::vector<std::int64_t> sizes;
  for (const std::int64_t bytes : {std::int64_t{1} << 16, std::int64_t{1} << 19, std::int64_t{1} << 20})
    for (const std::int64_t more : {-2, 0, 2}) sizes.push_back(bytes / element + more);
  sizes.push_back(ranks * 65536 + 2);
  sizes.push_back((std::int64_t{5} << 20) / element + 2);
  return sizes;
}

namespace {

void check_all_reduce(const Subject& subject, std::int64_t numel, at::ScalarType dtype, Layout layout, ReduceOp op,
                      bool async) {
  INFO("numel ", numel, " dtype ", c10::toString(dtype), " layout ", static_cast<int>(layout), " op ",
       static_cast<int>(op), " async ", async);
  at::Tensor tensor = tensor_of(numel, dtype, layout, subject);
  tensor.copy_(values_of(subject.group.rank(), tensor, op));
  run(
      async, [&] { all_reduce(tensor, op, subject.group); },
      [&] { return all_reduce_async(tensor, op, subject.group); });
  CHECK(at::equal(tensor.cpu(), reduced(tensor, op, subject.group.size())));
}

}  // namespace

TEST_CASE("all_reduce combines every dtype, layout and size with every operation, sync and async") {
  for_each_subject([](const Subject& subject) {
    for (const at::ScalarType dtype : kDtypes)
      for (const ReduceOp op : ops_for(dtype))
        for (const Layout layout : kLayouts)
          for (const std::int64_t numel : {0, 2, 6, 1000})
            for (const bool async : {false, true}) check_all_reduce(subject, numel, dtype, layout, op, async);
  });
}

TEST_CASE("all_reduce is exact around the ends of pieces") {
  for_each_subject([](const Subject& subject) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kChar})
      for (const std::int64_t numel :
           border_sizes(static_cast<std::int64_t>(at::elementSize(dtype)), subject.group.size()))
        for (const bool async : {false, true}) {
          check_all_reduce(subject, numel, dtype, Layout::kContiguous, ReduceOp::kSum, async);
          if (at::isFloatingType(dtype))
            check_all_reduce(subject, numel, dtype, Layout::kTransposed, ReduceOp::kAvg, async);
        }
  });
}

TEST_CASE("a factor is applied to the result, and 1 leaves its bits alone") {
  for_each_subject([](const Subject& subject) {
    const int size = subject.group.size();
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf})
      for (const std::int64_t numel : {3, 1 << 19}) {
        INFO("dtype ", c10::toString(dtype), " numel ", numel);
        at::Tensor sum = at::full({numel}, subject.group.rank() + 1, at::TensorOptions(dtype).device(subject.device));
        at::Tensor average = sum.clone();
        at::Tensor largest = sum.clone();
        detail::all_reduce(sum, {.op = ReduceOp::kSum, .factor = 4.0}, subject.group, {});
        detail::all_reduce(average, {.op = ReduceOp::kAvg, .factor = 2.0}, subject.group, {});
        detail::all_reduce(largest, {.op = ReduceOp::kMax, .factor = 0.5}, subject.group, {});
        const double total = size * (size + 1) / 2.0;
        CHECK((sum == 4.0 * total).all().item<bool>());
        CHECK((average == total / size * 2.0).all().item<bool>());
        CHECK((largest == 0.5 * size).all().item<bool>());
      }
  });
}

TEST_CASE("16-bit sums are rounded once") {
  for_each_subject([](const Subject& subject) {
    if (!subject.one_rounding) return;
    const int size = subject.group.size();
    // 2048 + 1 has no float16, so that rank after rank the ones would be lost; together they are size - 1.
    at::Tensor half = at::full({70000}, subject.group.rank() == 0 ? 2048.0 : 1.0, at::kHalf);
    all_reduce(half, ReduceOp::kSum, subject.group);
    CHECK((half == at::full({}, 2048.0 + (size - 1), at::kFloat).to(at::kHalf)).all().item<bool>());
    at::Tensor brain = at::full({5}, subject.group.rank() == 0 ? 256.0 : 1.0, at::kBFloat16);
    all_reduce(brain, ReduceOp::kSum, subject.group);
    CHECK((brain == at::full({}, 256.0 + (size - 1), at::kFloat).to(at::kBFloat16)).all().item<bool>());
    // A sum beyond float16 on the way to a mean within it.
    at::Tensor mean = at::full({9}, 60000.0, at::kHalf);
    all_reduce(mean, ReduceOp::kAvg, subject.group);
    CHECK((mean == at::full({}, 60000.0).to(at::kHalf)).all().item<bool>());
  });
}

TEST_CASE("infinities and NaN arrive on every rank") {
  for_each_subject([](const Subject& subject) {
    const bool last = subject.group.rank() == subject.group.size() - 1;
    for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
      at::Tensor tensor = at::ones({4}, at::TensorOptions(dtype).device(subject.device));
      if (last) {
        tensor[1] = INFINITY;
        tensor[2] = NAN;
      }
      all_reduce(tensor, ReduceOp::kSum, subject.group);
      CHECK(tensor[0].item<float>() == static_cast<float>(subject.group.size()));
      CHECK(std::isinf(tensor[1].item<float>()));
      CHECK(std::isnan(tensor[2].item<float>()));
    }
  });
}

TEST_CASE("broadcast copies every root's values") {
  for_each_subject([](const Subject& subject) {
    for (int root = 0; root < subject.group.size(); ++root)
      for (const at::ScalarType dtype : kDtypes)
        for (const Layout layout : kLayouts)
          for (const std::int64_t numel : {0, 6, 600002})
            for (const bool async : {false, true}) {
              if (numel > 1000 && dtype != at::kFloat && dtype != at::kHalf) continue;
              INFO("root ", root, " dtype ", c10::toString(dtype), " numel ", numel, " async ", async);
              at::Tensor tensor = tensor_of(numel, dtype, layout, subject);
              tensor.copy_(values_of(subject.group.rank(), tensor));
              run(
                  async, [&] { broadcast(tensor, root, subject.group); },
                  [&] { return broadcast_async(tensor, root, subject.group); });
              CHECK(at::equal(tensor.cpu(), values_of(root, tensor).cpu()));
            }
  });
}

TEST_CASE("all_gather_into puts every rank's tensor in its row") {
  for_each_subject([](const Subject& subject) {
    const int size = subject.group.size();
    for (const at::ScalarType dtype : kDtypes)
      for (const Layout layout : kLayouts)
        for (const std::int64_t numel : {0, 6, 1000})
          for (const bool async : {false, true}) {
            INFO("dtype ", c10::toString(dtype), " numel ", numel, " async ", async);
            at::Tensor input = tensor_of(numel, dtype, layout, subject);
            input.copy_(values_of(subject.group.rank(), input));
            std::vector<std::int64_t> shape = input.sizes().vec();
            shape.insert(shape.begin(), size);
            at::Tensor output = at::zeros(shape, input.options());
            run(
                async, [&] { all_gather_into(output, input, subject.group); },
                [&] { return all_gather_into_async(output, input, subject.group); });
            for (int rank = 0; rank < size; ++rank) CHECK(at::equal(output[rank].cpu(), values_of(rank, input).cpu()));
          }
  });
}

TEST_CASE("all_gather_into works in place: the input is this rank's row") {
  for_each_subject([](const Subject& subject) {
    const int size = subject.group.size();
    at::Tensor output = at::full({size, 5}, -1.0, at::TensorOptions().device(subject.device));
    const at::Tensor own = output[subject.group.rank()];
    own.fill_(subject.group.rank());
    all_gather_into(output, own, subject.group);
    for (int rank = 0; rank < size; ++rank) CHECK((output[rank] == rank).all().item<bool>());
  });
}

TEST_CASE("all_gather takes rows of different lengths, scalars and nothing at all") {
  for_each_subject([](const Subject& subject) {
    const int rank = subject.group.rank();
    const int size = subject.group.size();
    const auto options = at::TensorOptions(at::kInt).device(subject.device);
    const auto rows = all_gather(at::full({rank * 2, 3}, rank, options), subject.group);
    const auto scalars = all_gather(at::full({}, 10 + rank, options), subject.group);
    const auto nothing = all_gather(at::zeros({0, 4}, options), subject.group);
    REQUIRE(rows.size() == static_cast<std::size_t>(size));
    for (int r = 0; r < size; ++r) {
      const auto at_rank = static_cast<std::size_t>(r);
      CHECK(rows[at_rank].sizes() == at::IntArrayRef({r * 2, 3}));
      CHECK((rows[at_rank] == r).all().item<bool>());
      CHECK(scalars[at_rank].dim() == 0);
      CHECK(scalars[at_rank].item<int>() == 10 + r);
      CHECK(nothing[at_rank].sizes() == at::IntArrayRef({0, 4}));
    }
  });
}

TEST_CASE("all_gather_text brings texts of any length, empty ones included") {
  for_each_subject([](const Subject& subject) {
    const std::string mine(static_cast<std::size_t>(subject.group.rank()), 'x');
    const auto texts = detail::all_gather_text(mine, Purpose::kControl, subject.group, {});
    REQUIRE(texts.size() == static_cast<std::size_t>(subject.group.size()));
    for (std::size_t rank = 0; rank < texts.size(); ++rank) CHECK(texts[rank] == std::string(rank, 'x'));
  });
}

TEST_CASE("all_gather refuses tensors that do not fit together, on all ranks and naming them") {
  for_each_subject([](const Subject& subject) {
    if (subject.group.size() == 1) return;
    const bool odd = subject.group.rank() == 1;
    const auto text_of = [&](const at::Tensor& tensor) -> std::string {
      try {
        static_cast<void>(all_gather(tensor, subject.group));
      } catch (const UsageError& error) {
        return error.what();
      }
      return "no error";
    };
    const auto options = at::TensorOptions().device(subject.device);
    CHECK(text_of(at::zeros({2}, options.dtype(odd ? at::kInt : at::kFloat))).find("Int [2] on rank 1") !=
          std::string::npos);
    CHECK(text_of(at::zeros({2, odd ? 4 : 3}, options)).find("Float [2, 4] on rank 1") != std::string::npos);
    const std::string undefined = text_of(odd ? at::Tensor() : at::zeros({2}, options));
    CHECK(undefined.find(odd ? "undefined" : "rank 1 gave one that cannot be sent") != std::string::npos);
    barrier(subject.group);  // the group is still good
  });
}

TEST_CASE("reduce_scatter leaves each rank its slice of the result") {
  for_each_subject([](const Subject& subject) {
    const int size = subject.group.size();
    for (const at::ScalarType dtype : kDtypes)
      for (const ReduceOp op : ops_for(dtype))
        for (const std::int64_t numel : {0, 4, 1000, 70000})
          for (const bool async : {false, true}) {
            if (numel > 1000 && dtype != at::kFloat && dtype != at::kHalf) continue;
            INFO("dtype ", c10::toString(dtype), " numel ", numel, " op ", static_cast<int>(op), " async ", async);
            const at::Tensor flat = tensor_of(size * numel, dtype, Layout::kContiguous, subject);
            const at::Tensor input = values_of(subject.group.rank(), flat, op).view({size, numel});
            at::Tensor output = tensor_of(numel, dtype, Layout::kStrided, subject);
            run(
                async, [&] { reduce_scatter(output, input, op, subject.group); },
                [&] { return reduce_scatter_async(output, input, op, subject.group); });
            CHECK(at::equal(output.cpu(), reduced(flat, op, size).view({size, numel})[subject.group.rank()]));
          }
  });
}

TEST_CASE("complex numbers travel as they are: sums, means, copies, gathers, slices and messages") {
  for_each_subject([](const Subject& subject) {
    const int size = subject.group.size();
    const int rank = subject.group.rank();
    // A rank's numbers, and what comes of those of all, out of real parts and imaginary parts that are known to work.
    const auto numbers = [](int r, const at::Tensor& like) {
      const at::Tensor real = values_of(r, at::real(like));
      return at::complex(real, -2.0 * real);
    };
    const auto combined = [size](const at::Tensor& like, ReduceOp op) {
      const at::Tensor real = reduced(at::real(like), op, size);
      return at::complex(real, -2.0 * real);
    };
    for (const at::ScalarType dtype : {at::kComplexFloat, at::kComplexDouble})
      for (const Layout layout : kLayouts)
        for (const std::int64_t numel : {0, 6, 70002})
          for (const bool async : {false, true}) {
            INFO("dtype ", c10::toString(dtype), " layout ", static_cast<int>(layout), " numel ", numel);
            const auto mine = [&] {
              at::Tensor tensor = tensor_of(numel, dtype, layout, subject);
              return tensor.copy_(numbers(rank, tensor));
            };
            for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
              at::Tensor tensor = mine();
              const auto version = tensor._version();
              run(
                  async, [&] { all_reduce(tensor, op, subject.group); },
                  [&] { return all_reduce_async(tensor, op, subject.group); });
              CHECK(at::equal(tensor.cpu(), combined(tensor, op).cpu()));
              CHECK(tensor._version() > version);
              at::Tensor slice = tensor_of(numel, dtype, Layout::kContiguous, subject);
              const at::Tensor rows = mine().reshape({-1}).repeat({size, 1});
              run(
                  async, [&] { reduce_scatter(slice, rows, op, subject.group); },
                  [&] { return reduce_scatter_async(slice, rows, op, subject.group); });
              CHECK(at::equal(slice.cpu(), combined(tensor, op).reshape({-1}).cpu()));
            }
            at::Tensor copy = mine();
            broadcast(copy, size - 1, subject.group);
            CHECK(at::equal(copy.cpu(), numbers(size - 1, copy).cpu()));
            at::Tensor rows = at::zeros({size, numel}, at::TensorOptions(dtype).device(subject.device));
            all_gather_into(rows, mine().reshape({-1}), subject.group);
            const auto ragged = all_gather(mine().reshape({-1}).narrow(0, 0, numel == 0 ? 0 : rank + 1), subject.group);
            for (int r = 0; r < size; ++r) {
              CHECK(at::equal(rows[r].cpu(), numbers(r, copy).reshape({-1}).cpu()));
              const at::Tensor row = numbers(r, copy).reshape({-1}).narrow(0, 0, numel == 0 ? 0 : r + 1);
              CHECK(at::equal(ragged[static_cast<std::size_t>(r)].cpu(), row.cpu()));
            }
            if (size == 1) continue;
            at::Tensor received = tensor_of(numel, dtype, layout, subject);
            Work receive = recv_async(received, (rank + size - 1) % size, subject.group);
            const at::Tensor sent = mine();
            Work send = send_async(sent, (rank + 1) % size, subject.group);
            receive.wait();
            send.wait();
            CHECK(at::equal(received.cpu(), numbers((rank + size - 1) % size, received).cpu()));
          }
    const auto scalars = all_gather(at::complex(at::full({}, rank + 1.0), at::full({}, 2.0)), subject.group);
    CHECK(scalars.back().dim() == 0);
    CHECK(scalars.back().item<c10::complex<double>>() == c10::complex<double>(size, 2.0));
  });
}

TEST_CASE("case 119: receive first, then send, on all ranks of a ring") {
  for_each_subject([](const Subject& subject) {
    const int size = subject.group.size();
    if (size == 1) return;
    const int rank = subject.group.rank();
    for (const Layout layout : kLayouts)
      for (const std::int64_t numel : {0, 6, 600002}) {
        INFO("numel ", numel);
        at::Tensor received = tensor_of(numel, at::kFloat, layout, subject);
        at::Tensor sent = tensor_of(numel, at::kFloat, layout, subject);
        sent.copy_(values_of(rank, sent));
        Work receive = recv_async(received, (rank + size - 1) % size, subject.group, 5);
        Work send = send_async(sent, (rank + 1) % size, subject.group, 5);
        receive.wait();
        send.wait();
        CHECK(at::equal(received.cpu(), values_of((rank + size - 1) % size, received).cpu()));
      }
  });
}

TEST_CASE("messages are matched by tag") {
  for_each_subject([](const Subject& subject) {
    if (subject.group.size() == 1) return;
    if (subject.group.rank() == 0) {
      Work one = send_async(at::full({2}, 1.0, at::TensorOptions().device(subject.device)), 1, subject.group, 1);
      Work two = send_async(at::full({2}, 2.0, at::TensorOptions().device(subject.device)), 1, subject.group, 2);
      one.wait();
      two.wait();
    } else if (subject.group.rank() == 1) {
      at::Tensor first = at::zeros({2}, at::TensorOptions().device(subject.device));
      at::Tensor second = first.clone();
      recv(second, 0, subject.group, 2);
      recv(first, 0, subject.group, 1);
      CHECK((first == 1.0).all().item<bool>());
      CHECK((second == 2.0).all().item<bool>());
    }
    barrier(subject.group);
  });
}

TEST_CASE("many operations under way finish in order, whatever is waited for first") {
  for_each_subject([](const Subject& subject) {
    const int size = subject.group.size();
    std::vector<at::Tensor> tensors;
    std::vector<Work> works;
    for (int i = 0; i < 50; ++i) {
      tensors.push_back(at::full({1 + i * 100}, i, at::TensorOptions().device(subject.device)));
      works.push_back(all_reduce_async(tensors.back(), ReduceOp::kSum, subject.group));
    }
    at::Tensor sync = at::ones({3}, at::TensorOptions().device(subject.device));
    all_reduce(sync, ReduceOp::kSum, subject.group);  // behind the queue
    for (int i = 49; i >= 0; --i) {
      works[static_cast<std::size_t>(i)].wait();
      CHECK((tensors[static_cast<std::size_t>(i)] == i * size).all().item<bool>());
    }
    CHECK((sync == size).all().item<bool>());
  });
}

}  // namespace accel::test
