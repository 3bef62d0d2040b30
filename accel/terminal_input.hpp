#pragma once

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

namespace accel::tool {

/// Copies what is typed to the job. mpirun runs in a process group of its own, so that Ctrl-C reaches the launcher
/// only, and may therefore not read the terminal itself.
class TerminalInput {
 public:
  explicit TerminalInput(boost::asio::io_context& context);

  /// Where mpirun's standard input comes from: the end of a pipe where ours is a terminal, else our own.
  [[nodiscard]] int descriptor_for_child() const { return read_end_ >= 0 ? read_end_ : 0; }

  /// After the child was started: closes its end here and copies until either side is at its end.
  void start();
  void stop();

 private:
  void copy();

  boost::asio::posix::stream_descriptor terminal_;
  boost::asio::posix::stream_descriptor pipe_;
  int read_end_ = -1;
  std::array<char, 4096> buffer_{};
};

}  // namespace accel::tool
