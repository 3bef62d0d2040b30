// accel env: what there is to know about this build and this host when something does not work.

#include "core/env.hpp"
#include "accel/commands.hpp"
#include "core/message.hpp"
#include "runtime/host.hpp"
#include "runtime/launcher.hpp"
#include "runtime/session.hpp"
#include "runtime/shared_memory.hpp"

#include <accel/version.hpp>

#include <torch/version.h>

#include <sys/utsname.h>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <system_error>

namespace accel::tool {
namespace {

using detail::cat;

#ifdef __clang__
constexpr const char* kCompiler = __VERSION__;  // begins with its name
#else
constexpr const char* kCompiler = "g++ " __VERSION__;
#endif

void print(std::string_view name, std::string_view value) {
  std::cout << name << ':' << std::string(name.size() < 20 ? 20 - name.size() : 1, ' ') << value << '\n';
}

std::string system_name() {
  utsname name{};
  return ::uname(&name) == 0 ? cat(name.sysname, ' ', name.release, ' ', name.machine) : "unknown";
}

std::string first_line_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string text;
  std::getline(file, text);
  return text;
}

void print_gpus() {
  const std::filesystem::path driver("/proc/driver/nvidia");
  const std::string version = first_line_of(driver / "version");
  print("nvidia driver", version.empty() ? "none" : version);
  std::error_code ignored;  // no driver, no list
  int count = 0;
  for (const auto& gpu : std::filesystem::directory_iterator(driver / "gpus", ignored)) {
    const std::string model = first_line_of(gpu.path() / "information");
    print(cat("gpu ", count++), model.substr(std::min(model.size(), model.find_first_not_of(" \t", 6))));
  }
}

void print_variables() {
  for (const char* name : {"OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "ACCEL_LOG", "ACCEL_EXIT_TIMEOUT",
                           "ACCEL_SHARED_MEMORY", "ACCEL_SHARED_MEMORY_LIMIT", "ACCEL_STAGE_LIMITS"})
    print(name, detail::env_text(name).value_or("not set"));
  bool launched = false;
  for (const char* name : detail::launcher_variables()) {
    const auto value = detail::env_text(name);
    if (!value) continue;
    launched = true;
    print(name, *value);
  }
  if (!launched) print("launcher", "none: started by hand");
}

int print_environment() {
  print("accel", ACCEL_VERSION);
  print("LibTorch", cat(TORCH_VERSION, " in " ACCEL_BUILD_LIBTORCH));
  print("MPI", detail::mpi_library());
  print("build", ACCEL_BUILD_TYPE ", ACCEL_WITH_MPI=" ACCEL_BUILD_MPI ", ACCEL_WITH_NCCL=" ACCEL_BUILD_NCCL
                                  ", sanitizers=" ACCEL_BUILD_SANITIZE);
  print("compiler", kCompiler);
  print("system", system_name());
  print("host", detail::host_name());
  print("cores", cat(detail::usable_cores(), " usable processors on ", detail::physical_cores(), " cores"));
  print("memory", cat(detail::memory_bytes() >> 20, " MiB"));
  print("shared memory", detail::describe_shared_memory());
  print_gpus();
  print_variables();
  return 0;
}

}  // namespace

void add_env(CLI::App& app, CommandLine& line) {
  app.add_subcommand("env", "print versions, build options, cores, GPUs and launcher variables")->callback([&line] {
    line.action = print_environment;
  });
}

}  // namespace accel::tool
