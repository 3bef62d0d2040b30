// accel bench: measures, once for a machine, which collectives are faster in memory that the ranks of a host share.

#include "accel/commands.hpp"
#include "accel/launch.hpp"
#include "runtime/host.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <stdexcept>

namespace accel::tool {
namespace {

// Beside this program, where the build and `cmake --install` put it.
std::string probe_program() {
  const auto probe = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "accel-probe";
  if (!std::filesystem::exists(probe))
    throw std::runtime_error("expected the program accel-probe in " + probe.parent_path().string() +
                             ", found none; build the target accel_probe (with ACCEL_WITH_MPI=ON)");
  return probe.string();
}

}  // namespace

void add_bench(CLI::App& app, CommandLine& line) {
  struct Words {
    int ranks = std::max(2, detail::physical_cores());
    bool no_save = false;
  };
  const auto words = std::make_shared<Words>();
  CLI::App* const command = app.add_subcommand(
      "bench", "time collectives in shared memory and through MPI on this host, and keep which is faster");
  command->add_option("-n,--ranks", words->ranks, "ranks to measure with")
      ->check(CLI::Range(2, 1 << 10))
      ->capture_default_str();
  command->add_flag("--no-save", words->no_save, "print only");
  command->callback([words, &line] {
    line.action = [words] {
      LaunchOptions options{.ranks = words->ranks, .program = {probe_program(), "stage"}};
      if (words->no_save) options.program.emplace_back("--no-save");
      return launch(options, false);
    };
  });
}

}  // namespace accel::tool
