#include "accel/child.hpp"

#include "accel/commands.hpp"
#include "core/message.hpp"

#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <system_error>

namespace accel::tool {
namespace {

void default_signals() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD, SIGPIPE})
    ::signal(number, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

[[noreturn]] void become(const ChildOptions& options, pid_t parent) {
  ::setpgid(0, 0);
  default_signals();
  if (options.signal_on_our_death != 0) ::prctl(PR_SET_PDEATHSIG, options.signal_on_our_death);
  // The parent may have gone before prctl could tell.
  if (::getppid() != parent) ::_exit(1);
  if (options.standard_input != STDIN_FILENO) ::dup2(options.standard_input, STDIN_FILENO);
  ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  for (const auto& [name, value] : options.environment) ::setenv(name.c_str(), value.c_str(), 1);
  for (const auto& name : options.unset) ::unsetenv(name.c_str());
  std::vector<char*> words;
  for (const auto& word : options.command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  const int error = errno;
  say(detail::cat("cannot start '", options.command[0], "': ", std::strerror(error)));
  ::_exit(error == ENOENT ? 127 : 126);
}

}  // namespace

pid_t start_child(const ChildOptions& options) {
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (child == 0) become(options, parent);
  // Both sides set it, so that it is set whoever runs first; the child may have changed to its program already.
  ::setpgid(child, child);
  return child;
}

int exit_code_of(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

}  // namespace accel::tool
