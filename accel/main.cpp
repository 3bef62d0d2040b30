// The accel command-line tool. Each subcommand is a file of its name.

#include "accel/commands.hpp"
#include "core/message.hpp"

#include <accel/version.hpp>

#include <unistd.h>
#include <algorithm>
#include <exception>
#include <string>
#include <string_view>

namespace accel::tool {

void say(std::string_view text) {
  const std::string line = detail::cat("accel launch: ", text, "\n");
  // A failed write to stderr has no better place to be reported.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

std::vector<std::string> program_of(const CLI::App& command, const CommandLine& line) {
  std::vector<std::string> words = command.remaining();
  // Dashes after the program's name are the program's own.
  if (line.has_dashes && !words.empty()) words.emplace_back("--");
  words.insert(words.end(), line.after_dashes.begin(), line.after_dashes.end());
  if (words.empty()) throw CLI::RequiredError("a program");
  return words;
}

}  // namespace accel::tool

int main(int argc, char** argv) {
  CLI::App app("accel: train LibTorch models on one process or many", "accel");
  app.set_version_flag("--version", ACCEL_VERSION);
  app.require_subcommand(1);
  accel::tool::CommandLine line;
  accel::tool::add_launch(app, line);
  accel::tool::add_env(app, line);
  accel::tool::add_bench(app, line);
  accel::tool::add_rank(app, line);
  const auto dashes = std::find(argv, argv + argc, std::string_view("--"));
  line.has_dashes = dashes != argv + argc;
  if (line.has_dashes) line.after_dashes.assign(dashes + 1, argv + argc);
  try {
    app.parse(static_cast<int>(dashes - argv), argv);
    return line.action();
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const std::exception& error) {
    accel::tool::say(error.what());
    return 1;
  }
}
