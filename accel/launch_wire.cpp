#include "accel/launch_wire.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <cstdio>
#include <memory>
#include <random>
#include <utility>

namespace accel::tool {

namespace asio = boost::asio;

void Line::start(std::function<void(const std::string&)> on_line, std::function<void()> on_closed) {
  on_line_ = std::move(on_line);
  on_closed_ = std::move(on_closed);
  read_next();
}

void Line::read_next() {
  // A line longer than this is none of ours.
  constexpr std::size_t kLongest = 4096;
  asio::async_read_until(socket_, asio::dynamic_buffer(received_, kLongest), '\n',
                         [self = shared_from_this()](const boost::system::error_code& error, std::size_t length) {
                           if (error) return self->closed();
                           const std::string line = self->received_.substr(0, length - 1);
                           self->received_.erase(0, length);
                           if (self->on_line_) self->on_line_(line);
                           if (self->socket_.is_open()) self->read_next();
                         });
}

void Line::send(const std::string& line) {
  if (!socket_.is_open()) return;
  waiting_ += line + "\n";
  if (sending_.empty()) write_next();
}

void Line::write_next() {
  sending_ = std::exchange(waiting_, {});
  if (sending_.empty()) {
    if (finishing_) close();
    return;
  }
  asio::async_write(socket_, asio::buffer(sending_),
                    [self = shared_from_this()](const boost::system::error_code& error, std::size_t) {
                      self->sending_.clear();
                      if (!error) self->write_next();  // a lost peer is seen by the read
                    });
}

void Line::closed() {
  close();
  // Moved out first: it may hold what holds this connection.
  const auto on_closed = std::exchange(on_closed_, nullptr);
  on_line_ = nullptr;
  if (on_closed) on_closed();
}

void Line::finish() {
  on_line_ = nullptr;
  on_closed_ = nullptr;
  finishing_ = true;
  if (sending_.empty()) write_next();
}

void Line::close() {
  boost::system::error_code ignored;
  socket_.close(ignored);
}

std::vector<std::string> reachable_addresses(bool remote) {
  if (!remote) return {"127.0.0.1"};
  std::vector<std::string> found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return found;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_LOOPBACK) != 0 || (entry->ifa_flags & IFF_UP) == 0)
      continue;
    if (entry->ifa_addr->sa_family != AF_INET) continue;
    std::array<char, NI_MAXHOST> text{};
    if (::getnameinfo(entry->ifa_addr, sizeof(sockaddr_in), text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0)
      found.emplace_back(text.data());
  }
  // Last: ranks on this host reach it, and on others it fails at once.
  found.emplace_back("127.0.0.1");
  return found;
}

std::string random_token() {
  std::random_device device;
  std::string token;
  for (int word = 0; word < 4; ++word) {
    std::array<char, 9> digits{};
    std::snprintf(digits.data(), digits.size(), "%08x", device());
    token += digits.data();
  }
  return token;
}

}  // namespace accel::tool
