#pragma once

#include <sys/types.h>
#include <string>
#include <utility>
#include <vector>

namespace accel::tool {

struct ChildOptions {
  std::vector<std::string> command;  ///< the program is searched in PATH
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<std::string> unset;
  int standard_input = 0;
  int signal_on_our_death = 0;
};

/// Starts a program in a process group of its own, with default signal handling and no descriptor of ours but 0, 1, 2.
/// A program that cannot be started exits with 127 (not found) or 126, after a line on stderr, as in a shell.
/// @throws std::system_error  there can be no more processes.
[[nodiscard]] pid_t start_child(const ChildOptions& options);

/// What a shell would report: the exit code, or 128 + signal.
[[nodiscard]] int exit_code_of(int wait_status);

}  // namespace accel::tool
