#include "data/data_scope.hpp"

#include "data/permutation.hpp"

#include <accel/data_generator.hpp>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>

#include <dlfcn.h>

#include <utility>

namespace accel {
namespace detail {
namespace {

thread_local DataScope::Stream current;

// at::set_num_threads would set it for threads that start later too. OpenMP's own call holds for this thread; it is
// looked up because only LibTorch knows which OpenMP it was linked with.
void use_one_thread() {
  thread_local bool done = false;
  if (std::exchange(done, true)) return;
  (void)at::get_num_threads();  // LibTorch sets this thread up at its first call, which must not come later
  using SetThreads = void (*)(int);
  if (auto* const call = reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"))) call(1);
}

}  // namespace

DataScope::DataScope(std::uint64_t seed, std::int64_t epoch, std::size_t begin, bool worker) : before_(current) {
  if (worker) use_one_thread();
  current = {mixed(mixed(seed, static_cast<std::uint64_t>(epoch)), begin), true, false};
}
DataScope::~DataScope() {
  current = before_;
}

}  // namespace detail

at::Generator data_generator() {
  if (!detail::current.inside) return at::detail::getDefaultCPUGenerator();
  thread_local const at::Generator generator = at::detail::createCPUGenerator();
  // Seeding takes longer than reading a small batch: only where numbers are asked for.
  if (!std::exchange(detail::current.seeded, true)) {
    at::Generator same = generator;
    same.set_current_seed(detail::current.key);
  }
  return generator;
}

}  // namespace accel
