#include "runtime/host.hpp"

#include "core/message.hpp"

#include <sched.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <fstream>
#include <set>

namespace accel::detail {
namespace {

// Hosts with more processors than a cpu_set_t holds fall back to the count of all that are online.
bool affinity(cpu_set_t& set) {
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof(set), &set) == 0;
}

int online_cores() {
  return static_cast<int>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

int usable_cores() {
  cpu_set_t set;
  return affinity(set) ? std::max(1, CPU_COUNT(&set)) : online_cores();
}

ProcessorMask usable_processors() {
  ProcessorMask mask{};
  cpu_set_t set;
  if (!affinity(set)) return mask;
  for (std::size_t cpu = 0; cpu < std::min<std::size_t>(CPU_SETSIZE, mask.size() * 64); ++cpu)
    if (CPU_ISSET(cpu, &set)) mask[cpu / 64] |= std::uint64_t{1} << (cpu % 64);
  return mask;
}

int physical_cores() {
  cpu_set_t set;
  if (!affinity(set)) return online_cores();
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) continue;
    std::ifstream file(cat("/sys/devices/system/cpu/cpu", cpu, "/topology/thread_siblings_list"));
    std::string siblings;
    // A kernel that does not say: each processor is a core of its own.
    if (!std::getline(file, siblings)) siblings = cat("cpu", cpu);
    cores.insert(siblings);
  }
  return std::max(1, static_cast<int>(cores.size()));
}

std::uint64_t memory_bytes() {
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long page_bytes = ::sysconf(_SC_PAGE_SIZE);
  if (pages <= 0 || page_bytes <= 0) return 0;
  return static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page_bytes);
}

}  // namespace accel::detail
