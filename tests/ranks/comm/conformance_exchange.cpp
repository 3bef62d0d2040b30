// The suite for collectives that have a root, and for those that send each rank something of its own.
#include "conformance.hpp"

#include "comm/ops.hpp"
#include "support/error_text.hpp"

#include <accel/error.hpp>

#include <ATen/ops/complex.h>

#include <cmath>

namespace accel::test {
namespace {

// The first and the last rank, which is another one in groups of two and more.
std::vector<int> roots_of(const Subject& subject) {
  if (subject.group.size() == 1) return {0};
  return {0, subject.group.size() - 1};
}

// Slice `index` of the `ranks` slices of a tensor, as one row on the CPU.
at::Tensor slice(const at::Tensor& tensor, int index, int ranks) {
  return tensor.reshape({ranks, tensor.numel() / ranks})[index].cpu();
}

void check_reduce(const Subject& subject, std::int64_t numel, at::ScalarType dtype, Layout layout, ReduceOp op,
                  int root, bool async) {
  INFO("numel ", numel, " dtype ", c10::toString(dtype), " layout ", static_cast<int>(layout), " op ",
       static_cast<int>(op), " root ", root, " async ", async);
  at::Tensor tensor = tensor_of(numel, dtype, layout, subject);
  const at::Tensor given = values_of(subject.group.rank(), tensor, op);
  tensor.copy_(given);
  const auto version = tensor._version();
  run(
      async, [&] { reduce(tensor, root, op, subject.group); },
      [&] { return reduce_async(tensor, root, op, subject.group); });
  if (subject.group.rank() == root) {
    CHECK(at::equal(tensor.cpu(), reduced(tensor, op, subject.group.size())));
    CHECK(tensor._version() > version);
  } else {
    CHECK(at::equal(tensor.cpu(), given.cpu()));
    CHECK(tensor._version() == version);
  }
}

}  // namespace

TEST_CASE("reduce combines every dtype, layout and size on the root, and leaves the other tensors as they are") {
  for_each_subject([](const Subject& subject) {
    for (const at::ScalarType dtype : kDtypes)
      for (const ReduceOp op : ops_for(dtype))
        for (const Layout layout : kLayouts)
          for (const std::int64_t numel : {0, 2, 1000})
            for (const int root : roots_of(subject)) check_reduce(subject, numel, dtype, layout, op, root, numel != 2);
  });
}

TEST_CASE("reduce is exact around the ends of pieces") {
  for_each_subject([](const Subject& subject) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf})
      for (const std::int64_t numel :
           border_sizes(static_cast<std::int64_t>(at::elementSize(dtype)), subject.group.size()))
        for (const int root : roots_of(subject)) {
          check_reduce(subject, numel, dtype, Layout::kContiguous, ReduceOp::kSum, root, false);
          check_reduce(subject, numel, dtype, Layout::kTransposed, ReduceOp::kAvg, root, true);
        }
  });
}

TEST_CASE("16-bit sums are rounded once on their way to a root") {
  for_each_subject([](const Subject& subject) {
    if (!subject.one_rounding) return;
    const int size = subject.group.size();
    const int root = size - 1;
    // As in the case of all_reduce: rank after rank the ones would be lost.
    at::Tensor half = at::full({70000}, subject.group.rank() == 0 ? 2048.0 : 1.0, at::kHalf);
    reduce(half, root, ReduceOp::kSum, subject.group);
    at::Tensor mean = at::full({9}, 60000.0, at::kHalf);
    reduce(mean, root, ReduceOp::kAvg, subject.group);
    if (subject.group.rank() == root) {
      CHECK((half == at::full({}, 2048.0 + (size - 1), at::kFloat).to(at::kHalf)).all().item<bool>());
      CHECK((mean == at::full({}, 60000.0).to(at::kHalf)).all().item<bool>());
    }
  });
}

TEST_CASE("gather brings every dtype and layout to the root, and nothing to the others") {
  for_each_subject([](const Subject& subject) {
    const int size = subject.group.size();
    for (const int root : roots_of(subject))
      for (const at::ScalarType dtype : kDtypes)
        for (const Layout layout : kLayouts)
          for (const std::int64_t numel : {0, 6, 70000}) {
            if (numel > 1000 && dtype != at::kFloat && dtype != at::kHalf) continue;
            INFO("root ", root, " dtype ", c10::toString(dtype), " numel ", numel);
            at::Tensor input = tensor_of(numel, dtype, layout, subject);
            input.copy_(values_of(subject.group.rank(), input));
            const auto parts = gather(input, root, subject.group);
            REQUIRE(parts.size() == static_cast<std::size_t>(subject.group.rank() == root ? size : 0));
            for (std::size_t rank = 0; rank < parts.size(); ++rank)
              CHECK(at::equal(parts[rank].cpu(), values_of(static_cast<int>(rank), input).cpu()));
          }
  });
}

TEST_CASE("gather takes rows of different lengths, scalars and nothing at all") {
  for_each_subject([](const Subject& subject) {
    const int rank = subject.group.rank();
    const int size = subject.group.size();
    const auto options = at::TensorOptions(at::kInt).device(subject.device);
    for (const int root : roots_of(subject)) {
      const auto rows = gather(at::full({rank * 2, 3}, rank, options), root, subject.group);
      const auto scalars = gather(at::full({}, 10 + rank, options), root, subject.group);
      const auto nothing = gather(at::zeros({0, 4}, options), root, subject.group);
      const auto leaf = at::ones({2}, at::TensorOptions().device(subject.device)).requires_grad_();
      const auto values = gather(leaf * 2, root, subject.group);
      const auto count = static_cast<std::size_t>(rank == root ? size : 0);
      REQUIRE(rows.size() == count);
      REQUIRE(scalars.size() == count);
      REQUIRE(nothing.size() == count);
      for (std::size_t r = 0; r < count; ++r) {
        const int from = static_cast<int>(r);
        CHECK(rows[r].sizes() == at::IntArrayRef({from * 2, 3}));
        CHECK((rows[r] == from).all().item<bool>());
        CHECK(scalars[r].dim() == 0);
        CHECK(scalars[r].item<int>() == 10 + from);
        CHECK(nothing[r].sizes() == at::IntArrayRef({0, 4}));
        CHECK((values[r] == 2.0).all().item<bool>());
        CHECK(!values[r].requires_grad());
      }
    }
  });
}

TEST_CASE("gather refuses what does not fit together, on all ranks and naming them") {
  for_each_subject([](const Subject& subject) {
    const int size = subject.group.size();
    const auto options = at::TensorOptions().device(subject.device);
    const auto text_of = [&](const at::Tensor& tensor, int root) {
      return error_text<UsageError>([&] { static_cast<void>(gather(tensor, root, subject.group)); });
    };
    CHECK(contains(text_of(at::zeros({2}, options), size), detail::cat("0..", size - 1, ", found ", size)));
    if (size == 1) return;
    const bool odd = subject.group.rank() == 1;
    CHECK(contains(text_of(at::zeros({2}, options.dtype(odd ? at::kInt : at::kFloat)), 0), "Int [2] on rank 1"));
    CHECK(contains(text_of(at::zeros({2, odd ? 4 : 3}, options), 1), "Float [2, 4] on rank 1"));
    CHECK(contains(text_of(odd ? at::Tensor() : at::zeros({2}, options), 0),
                   odd ? "undefined" : "rank 1 gave one that cannot be sent"));
    CHECK(contains(text_of(at::zeros({2}, options), odd ? -1 : 0),
                   odd ? "found -1" : "rank 1 gave one that cannot be sent"));
    const std::string roots = text_of(at::zeros({2}, options), odd ? 1 : 0);
    CHECK(contains(roots, "the same `root` on all ranks, found 0 on rank 0 and 1 on rank 1"));
    CHECK(contains(roots, "conformance_exchange.cpp:"));
    barrier(subject.group);  // the group is still good
  });
}

TEST_CASE("scatter leaves each rank its slice of the root's tensor") {
  for_each_subject([](const Subject& subject) {
    const int size = subject.group.size();
    const int rank = subject.group.rank();
    for (const int root : roots_of(subject))
      for (const at::ScalarType dtype : kDtypes)
        for (const Layout layout : kLayouts)
          for (const std::int64_t numel : {0, 6, 70000})
            for (const bool async : {false, true}) {
              if (numel > 1000 && dtype != at::kFloat && dtype != at::kHalf) continue;
              INFO("root ", root, " dtype ", c10::toString(dtype), " numel ", numel, " async ", async);
              const at::Tensor all = values_of(root, tensor_of(size * numel, dtype, layout, subject));
              at::Tensor input;
              if (rank == root) input = tensor_of(size * numel, dtype, layout, subject).copy_(all);
              at::Tensor output = tensor_of(numel, dtype, layout, subject);
              const auto version = output._version();
              run(
                  async, [&] { scatter(output, input, root, subject.group); },
                  [&] { return scatter_async(output, input, root, subject.group); });
              CHECK(at::equal(output.reshape({-1}).cpu(), slice(all, rank, size)));
              CHECK(output._version() > version);
              if (rank == root) CHECK(at::equal(input.cpu(), all.cpu()));
            }
  });
}

TEST_CASE("scatter works in place: the root's output is its slice of the input") {
  for_each_subject([](const Subject& subject) {
    const int size = subject.group.size();
    const int rank = subject.group.rank();
    const auto options = at::TensorOptions(at::kFloat).device(subject.device);
    for (const int root : roots_of(subject)) {
      const at::Tensor input = at::arange(size * 5, options).view({size, 5});
      at::Tensor output = rank == root ? input[rank] : at::zeros({5}, options);
      scatter(output, rank == root ? input : at::Tensor(), root, subject.group);
      CHECK(at::equal(output, at::arange(rank * 5, rank * 5 + 5, options)));
      CHECK(at::equal(input, at::arange(size * 5, options).view({size, 5})));
    }
  });
}

TEST_CASE("all_to_all exchanges slices of every dtype and layout") {
  for_each_subject([](const Subject& subject) {
    const int size = subject.group.size();
    const int rank = subject.group.rank();
    for (const at::ScalarType dtype : kDtypes)
      for (const Layout layout : kLayouts)
        for (const std::int64_t numel : {0, 6, 1000, 70000})
          for (const bool async : {false, true}) {
            if (numel > 1000 && dtype != at::kFloat && dtype != at::kHalf) continue;
            INFO("dtype ", c10::toString(dtype), " numel ", numel, " async ", async);
            at::Tensor input = tensor_of(size * numel, dtype, layout, subject);
            input.copy_(values_of(rank, input));
            at::Tensor output = tensor_of(size * numel, dtype, layout, subject);
            const auto version = output._version();
            run(
                async, [&] { all_to_all(output, input, subject.group); },
                [&] { return all_to_all_async(output, input, subject.group); });
            for (int from = 0; from < size; ++from)
              CHECK(at::equal(slice(output, from, size), slice(values_of(from, input), rank, size)));
            CHECK(at::equal(input.cpu(), values_of(rank, input).cpu()));
            CHECK(output._version() > version);
          }
  });
}

TEST_CASE("all_to_all refuses slices that do not fit, on all ranks") {
  for_each_subject([](const Subject& subject) {
    const int size = subject.group.size();
    const auto options = at::TensorOptions().device(subject.device);
    const at::Tensor input = at::zeros({2 * size, 3}, options);
    const auto text_of = [&](at::Tensor output, const at::Tensor& given) {
      return error_text<UsageError>([&] { all_to_all(output, given, subject.group); });
    };
    CHECK(contains(text_of(at::zeros({2 * size, 4}, options), input), "found [" + std::to_string(2 * size) + ", 4]"));
    CHECK(contains(text_of(at::zeros({2 * size, 3}, options.dtype(at::kInt)), input), "Int"));
    CHECK(contains(text_of(at::zeros({}, options), at::zeros({}, options)), "found shape []"));
    if (size > 1)
      CHECK(contains(text_of(at::zeros({size + 1}, options), at::zeros({size + 1}, options)), "found shape"));
    CHECK(contains(text_of(input, input), "shares some with `input`"));
    CHECK(contains(text_of(at::Tensor(), input), "undefined"));
    barrier(subject.group);
  });
}

namespace {

// What rank `from` has for rank `to`: rows that tell both, none at all for some pairs.
std::int64_t rows_between(int from, int to) {
  return (from + 2 * to) % 4;
}
at::Tensor message_between(int from, int to, at::ScalarType dtype, const Subject& subject) {
  const auto options = at::TensorOptions(dtype).device(subject.device);
  if (dtype == at::kBool) return at::full({rows_between(from, to), 3}, (from + to) % 2 == 1, options);
  return at::full({rows_between(from, to), 3}, 10 * from + to, options);
}

}  // namespace

TEST_CASE("all_to_all takes a tensor of its own length for each rank") {
  for_each_subject([](const Subject& subject) {
    const int size = subject.group.size();
    const int rank = subject.group.rank();
    for (const at::ScalarType dtype : kDtypes) {
      INFO("dtype ", c10::toString(dtype));
      std::vector<at::Tensor> inputs;
      for (int to = 0; to < size; ++to) {
        at::Tensor message = message_between(rank, to, dtype, subject);
        if (to % 2 == 1) message = message.t().contiguous().t();  // not in one block
        inputs.push_back(message);
      }
      const auto outputs = all_to_all(inputs, subject.group);
      REQUIRE(outputs.size() == static_cast<std::size_t>(size));
      for (int from = 0; from < size; ++from)
        CHECK(at::equal(outputs[static_cast<std::size_t>(from)].cpu(),
                        message_between(from, rank, dtype, subject).cpu()));
    }
  });
}

TEST_CASE("all_to_all of lists takes large parts, scalars, empty tensors and those with a graph") {
  for_each_subject([](const Subject& subject) {
    const int size = subject.group.size();
    const int rank = subject.group.rank();
    const auto options = at::TensorOptions().device(subject.device);
    std::vector<at::Tensor> large;
    std::vector<at::Tensor> scalars;
    std::vector<at::Tensor> nothing;
    for (int to = 0; to < size; ++to) {
      // One pair moves much, the others little.
      large.push_back(at::full({rank == 0 && to == size - 1 ? 300000 : 1}, rank + 0.5, options).requires_grad_());
      scalars.push_back(at::full({}, 10 * rank + to, options.dtype(at::kLong)));
      nothing.push_back(at::zeros({0, 2}, options));
    }
    const auto from_large = all_to_all(large, subject.group);
    const auto from_scalars = all_to_all(scalars, subject.group);
    const auto from_nothing = all_to_all(nothing, subject.group);
    for (int from = 0; from < size; ++from) {
      const auto at_rank = static_cast<std::size_t>(from);
      CHECK(from_large[at_rank].numel() == (from == 0 && rank == size - 1 ? 300000 : 1));
      CHECK((from_large[at_rank] == from + 0.5).all().item<bool>());
      CHECK(!from_large[at_rank].requires_grad());
      CHECK(from_scalars[at_rank].dim() == 0);
      CHECK(from_scalars[at_rank].item<std::int64_t>() == 10 * from + rank);
      CHECK(from_nothing[at_rank].sizes() == at::IntArrayRef({0, 2}));
    }
  });
}

TEST_CASE("all_to_all refuses lists that do not fit together, on all ranks and naming them") {
  for_each_subject([](const Subject& subject) {
    const int size = subject.group.size();
    const auto options = at::TensorOptions().device(subject.device);
    const auto list = [&](const at::Tensor& each) {
      return std::vector<at::Tensor>(static_cast<std::size_t>(size), each);
    };
    const auto text_of = [&](const std::vector<at::Tensor>& inputs) {
      return error_text<UsageError>([&] { static_cast<void>(all_to_all(inputs, subject.group)); });
    };
    CHECK(contains(text_of({}), detail::cat("expected one tensor for each of ", size)));
    CHECK(contains(text_of(list(at::Tensor())), "undefined"));
    if (size == 1) return;
    const bool odd = subject.group.rank() == 1;
    CHECK(contains(text_of(list(at::zeros({2}, options.dtype(odd ? at::kInt : at::kFloat)))), "Int [2] on rank 1"));
    CHECK(contains(text_of(list(at::zeros({2, odd ? 4 : 3}, options))), "Float [2, 4] on rank 1"));
    const std::string other = "rank 1 gave one that cannot be sent";
    CHECK(contains(text_of(odd ? std::vector<at::Tensor>() : list(at::zeros({2}, options))), odd ? "found 0" : other));
    std::vector<at::Tensor> mixed = list(at::zeros({2}, options));
    if (odd) mixed.back() = at::zeros({2}, options.dtype(at::kInt));
    CHECK(contains(text_of(mixed), odd ? "of one dtype" : other));
    barrier(subject.group);
  });
}

TEST_CASE("complex numbers are reduced, gathered, scattered and exchanged as they are") {
  for_each_subject([](const Subject& subject) {
    const int size = subject.group.size();
    const int rank = subject.group.rank();
    const int root = size - 1;
    const auto numbers = [](int r, const at::Tensor& like) {
      const at::Tensor real = values_of(r, at::real(like));
      return at::complex(real, -2.0 * real);
    };
    for (const at::ScalarType dtype : {at::kComplexFloat, at::kComplexDouble})
      for (const Layout layout : kLayouts)
        for (const std::int64_t numel : {0, 6, 70002}) {
          INFO("dtype ", c10::toString(dtype), " layout ", static_cast<int>(layout), " numel ", numel);
          at::Tensor sum = tensor_of(numel, dtype, layout, subject);
          sum.copy_(numbers(rank, sum));
          const auto parts = gather(sum, root, subject.group);
          for (std::size_t r = 0; r < parts.size(); ++r)
            CHECK(at::equal(parts[r].cpu(), numbers(static_cast<int>(r), sum).cpu()));
          reduce(sum, root, ReduceOp::kAvg, subject.group);
          const at::Tensor real = reduced(at::real(sum), ReduceOp::kAvg, size);
          CHECK(at::equal(sum.cpu(), rank == root ? at::complex(real, -2.0 * real) : numbers(rank, sum).cpu()));

          const at::Tensor like = tensor_of(size * numel, dtype, layout, subject);
          const at::Tensor given = like.clone().copy_(numbers(rank, like));
          at::Tensor mine = tensor_of(numel, dtype, layout, subject);
          scatter(mine, given, root, subject.group);
          CHECK(at::equal(mine.reshape({-1}).cpu(), slice(numbers(root, like), rank, size)));
          at::Tensor exchanged = tensor_of(size * numel, dtype, layout, subject);
          all_to_all(exchanged, given, subject.group);
          for (int from = 0; from < size; ++from)
            CHECK(at::equal(slice(exchanged, from, size), slice(numbers(from, like), rank, size)));
        }
    std::vector<at::Tensor> lists;
    for (int to = 0; to < size; ++to)
      lists.push_back(at::complex(at::full({to + 1}, rank + 1.0), at::full({to + 1}, 2.0)));
    const auto received = all_to_all(lists, subject.group);
    CHECK(received.back().sizes() == at::IntArrayRef({rank + 1}));
    CHECK(received.back()[rank].item<c10::complex<double>>() == c10::complex<double>(size, 2.0));
  });
}

TEST_CASE("calls with a root and exchanges under way finish in order") {
  for_each_subject([](const Subject& subject) {
    const int size = subject.group.size();
    const int rank = subject.group.rank();
    const auto options = at::TensorOptions().device(subject.device);
    at::Tensor sum = at::full({5000}, rank + 1.0, options);
    const at::Tensor slices = at::arange(size, options.dtype(at::kFloat)).repeat_interleave(3);
    at::Tensor exchanged = at::zeros({3 * size}, options);
    at::Tensor own = at::zeros({3}, options);
    Work first = reduce_async(sum, 0, ReduceOp::kSum, subject.group);
    Work second = broadcast_async(sum, 0, subject.group);
    Work third = all_to_all_async(exchanged, slices, subject.group);
    Work fourth = scatter_async(own, slices, size - 1, subject.group);
    const auto rows = gather(at::full({1}, rank, options), 0, subject.group);  // behind the queue
    fourth.wait();
    third.wait();
    second.wait();
    first.wait();
    CHECK((sum == size * (size + 1) / 2.0).all().item<bool>());
    CHECK((exchanged == rank).all().item<bool>());
    CHECK((own == rank).all().item<bool>());
    if (rank == 0) CHECK(rows.back().item<float>() == static_cast<float>(size - 1));
  });
}

}  // namespace accel::test
