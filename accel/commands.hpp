#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace accel::tool {

/// What the subcommands get of the command line, and what they make of it.
struct CommandLine {
  bool has_dashes = false;
  std::vector<std::string> after_dashes;  ///< the words after `--`, which CLI11 does not see
  std::function<int()> action;            ///< set by the subcommand that was called; returns the tool's exit code
};

/// Each adds its subcommand and options to `app`.
void add_launch(CLI::App& app, CommandLine& line);
void add_env(CLI::App& app, CommandLine& line);
void add_bench(CLI::App& app, CommandLine& line);
void add_rank(CLI::App& app, CommandLine& line);

/// One line on stderr: `accel launch: text`.
void say(std::string_view text);

/// A program and its arguments: what follows the options of `command`, with or without `--` before it.
/// @throws CLI::RequiredError  there is none.
std::vector<std::string> program_of(const CLI::App& command, const CommandLine& line);

}  // namespace accel::tool
