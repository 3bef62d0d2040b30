#include "accel/launch_plan.hpp"

#include "core/env.hpp"
#include "core/message.hpp"
#include "runtime/host.hpp"

#include <accel/error.hpp>

#include <unistd.h>
#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>

namespace accel::tool {
namespace {

using detail::cat;
using detail::env_text;

bool contains(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool executable_file(const std::string& path) {
  std::error_code missing;
  return std::filesystem::is_regular_file(path, missing) && ::access(path.c_str(), X_OK) == 0;
}

std::string shell_quoted(const std::string& word) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("_-+=./:,@%^").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

std::string joined(const std::vector<std::string>& words, const char* between) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

std::string first_line_of_command(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), &::pclose);
  std::array<char, 256> buffer{};
  if (!pipe || std::fgets(buffer.data(), buffer.size(), pipe.get()) == nullptr) return {};
  const std::string line = buffer.data();
  return line.substr(0, line.find('\n'));
}

}  // namespace

int threads_per_rank(int cores, int ranks, int machines) {
  const int on_one = (ranks + machines - 1) / std::max(1, machines);
  return std::max(1, cores / std::max(1, on_one));
}

int machines_of(const LaunchOptions& options) {
  std::set<std::string> names;
  for (const auto& host : options.hosts) names.insert(host.substr(0, host.find(':')));
  if (!options.hostfile.empty()) {
    std::ifstream file(options.hostfile);
    if (!file) throw UsageError(cat("expected a readable --hostfile, found none at ", options.hostfile));
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line.substr(0, line.find('#')));
      std::string name;
      if (words >> name) names.insert(name);
    }
  }
  return std::max(1, static_cast<int>(names.size()));
}

bool may_be_remote(const LaunchOptions& options) {
  if (!options.hostfile.empty() || !options.hosts.empty() || !options.mpirun_arguments.empty()) return true;
  const auto names = {"SLURM_JOB_ID",      "PBS_NODEFILE", "LSB_HOSTS",
                      "LSB_DJOB_HOSTFILE", "PE_HOSTFILE",  "OMPI_MCA_orte_default_hostfile"};
  return std::any_of(names.begin(), names.end(), [](const char* name) { return env_text(name).has_value(); });
}

LaunchPlan plan_launch(const LaunchOptions& options, const Machine& machine, const std::vector<std::string>& exported) {
  LaunchPlan plan;
  const int machines = machines_of(options);
  const bool remote = may_be_remote(options);
  const bool crowded = machines == 1 && options.ranks > machine.physical_cores;
  const auto& extra = options.mpirun_arguments;
  if (machine.root) {
    plan.environment.emplace_back("OMPI_ALLOW_RUN_AS_ROOT", "1");
    plan.environment.emplace_back("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
  }
  const std::string threads = std::to_string(threads_per_rank(machine.usable_cores, options.ranks, machines));
  if (!machine.threads_set) plan.environment.emplace_back("OMP_NUM_THREADS", threads);

  // mpirun's own report of a failed rank would follow the one that names it.
  plan.command = {machine.mpirun, "--quiet", "-n", std::to_string(options.ranks)};
  std::vector<std::string> chosen;
  if (crowded && !contains(extra, "--oversubscribe")) chosen.push_back("--oversubscribe");
  // mpirun would bind a rank to one core, with all the threads it was just given.
  if (!contains(extra, "--bind-to")) chosen.insert(chosen.end(), {"--bind-to", "none"});
  plan.command.insert(plan.command.end(), chosen.begin(), chosen.end());
  if (!options.hostfile.empty()) plan.command.insert(plan.command.end(), {"--hostfile", options.hostfile});
  if (!options.hosts.empty()) plan.command.insert(plan.command.end(), {"--host", joined(options.hosts, ",")});
  std::vector<std::string> variables = options.environment;
  if (remote) {
    variables.push_back("OMP_NUM_THREADS");
    variables.insert(variables.end(), exported.begin(), exported.end());
  }
  for (const auto& variable : variables) plan.command.insert(plan.command.end(), {"-x", variable});
  plan.command.insert(plan.command.end(), extra.begin(), extra.end());
  plan.command.insert(plan.command.end(), {machine.tool, "rank", "--"});
  plan.command.insert(plan.command.end(), options.program.begin(), options.program.end());

  plan.summary = cat("mpirun -n ", options.ranks, " ", joined(chosen, " "), " (", options.ranks,
                     options.ranks == 1 ? " rank, " : " ranks, ", machine.physical_cores, " cores",
                     machines > 1 ? cat(" on this host, ", machines, " hosts") : "",
                     machine.root ? ", allowed to run as root" : "",
                     machine.threads_set ? ", OMP_NUM_THREADS as set" : ", OMP_NUM_THREADS=" + threads, ")");
  return plan;
}

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return executable_file(name) ? name : "";
  std::istringstream folders(env_text("PATH").value_or("/usr/local/bin:/usr/bin:/bin"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string path = cat(folder.empty() ? "." : folder, "/", name);
    if (executable_file(path)) return path;
  }
  return {};
}

Machine this_machine() {
  Machine machine;
  machine.usable_cores = detail::usable_cores();
  machine.physical_cores = detail::physical_cores();
  machine.root = ::geteuid() == 0;
  machine.threads_set = env_text("OMP_NUM_THREADS").has_value();
  machine.tool = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string wanted = env_text("ACCEL_MPIRUN").value_or("mpirun");
  machine.mpirun = find_program(wanted);
  if (machine.mpirun.empty())
    throw UsageError(cat("expected Open MPI's mpirun, found no '", wanted, "'; install it (Debian: apt-get install ",
                         "openmpi-bin) or name it in ACCEL_MPIRUN"));
  const std::string version = first_line_of_command(shell_quoted(machine.mpirun) + " --version 2>/dev/null");
  if (version.find("Open MPI") == std::string::npos && version.find("OpenRTE") == std::string::npos)
    throw UsageError(cat("expected Open MPI's mpirun, found ", machine.mpirun, " (",
                         version.empty() ? "silent" : version,
                         "); name Open MPI's in ACCEL_MPIRUN, or start the ranks with this one yourself"));
  return machine;
}

std::string shell_text(const LaunchPlan& plan) {
  std::string text;
  for (const auto& [name, value] : plan.environment) text += cat(name, "=", shell_quoted(value), " ");
  std::vector<std::string> words;
  for (const auto& word : plan.command) words.push_back(shell_quoted(word));
  return text + joined(words, " ");
}

}  // namespace accel::tool
