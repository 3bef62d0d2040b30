#include "accel/terminal_input.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>

namespace accel::tool {

namespace asio = boost::asio;

TerminalInput::TerminalInput(asio::io_context& context) : terminal_(context), pipe_(context) {
  // In the background a read would stop the launcher.
  if (::isatty(STDIN_FILENO) == 0 || ::tcgetpgrp(STDIN_FILENO) != ::getpgrp()) return;
  const char* name = ::ttyname(STDIN_FILENO);
  // Opened anew: reading without blocking is a property that a copy would share with the shell, beyond our end.
  const int terminal = name != nullptr ? ::open(name, O_RDONLY | O_CLOEXEC | O_NOCTTY) : -1;
  if (terminal < 0) return;
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    ::close(terminal);
    return;
  }
  boost::system::error_code error;
  terminal_.assign(terminal, error);
  pipe_.assign(ends[1], error);
  read_end_ = ends[0];
}

void TerminalInput::start() {
  if (read_end_ < 0) return;
  ::close(read_end_);
  read_end_ = -1;
  copy();
}

void TerminalInput::copy() {
  terminal_.async_read_some(asio::buffer(buffer_), [this](const boost::system::error_code& error, std::size_t length) {
    if (error) return stop();
    asio::async_write(pipe_, asio::buffer(buffer_, length),
                      [this](const boost::system::error_code& failed, std::size_t) { failed ? stop() : copy(); });
  });
}

void TerminalInput::stop() {
  boost::system::error_code ignored;
  terminal_.close(ignored);
  pipe_.close(ignored);
}

}  // namespace accel::tool
