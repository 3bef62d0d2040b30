#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace accel::tool {

// Between `accel launch` and the `accel rank` beside each program, one word line each:
//
//   accel rank  -> launch   hello <token> <rank> <pid> <host>
//                           exit <code> <told>        the program ended; told: after it was sent a signal to end it
//                           killed <signal> <told>
//   launch -> accel rank    signal <number>           pass it on to the program
//                           end                       end the program, then yourself
//
// A connection that closes means "end" to a rank.

/// Names of the variables by which a rank finds its launcher: addresses (host port, separated by commas), and a token
/// that shows a connection to be one of this job's.
inline constexpr const char* kAddressesVariable = "ACCEL_LAUNCH_ADDRESSES";
inline constexpr const char* kTokenVariable = "ACCEL_LAUNCH_TOKEN";

/// A TCP connection that carries lines both ways. Lives as long as a read or write is under way.
class Line : public std::enable_shared_from_this<Line> {
 public:
  explicit Line(boost::asio::ip::tcp::socket socket) : socket_(std::move(socket)) {}

  /// Calls `on_line` for each line, then `on_closed` once.
  void start(std::function<void(const std::string&)> on_line, std::function<void()> on_closed);
  void send(const std::string& line);
  void close();
  /// Stops reading and closes once all that was sent has gone out; nothing is called any more.
  void finish();

 private:
  void read_next();
  void write_next();
  void closed();

  boost::asio::ip::tcp::socket socket_;
  std::function<void(const std::string&)> on_line_;
  std::function<void()> on_closed_;
  std::string received_;
  std::string sending_;
  std::string waiting_;
  bool finishing_ = false;
};

/// Addresses of this host that others may reach, as dotted or colon text; with the loopback address only where the
/// job stays on this host.
[[nodiscard]] std::vector<std::string> reachable_addresses(bool remote);

/// 32 hexadecimal digits that nobody can guess.
[[nodiscard]] std::string random_token();

}  // namespace accel::tool
