#include "comm/nccl.hpp"

#include "core/message.hpp"
#include "runtime/session.hpp"

#include <accel/error.hpp>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>
#include <sstream>
#include <vector>

namespace accel::detail {
namespace {

// What a rank tries before it asks for the next address of rank 0.
constexpr auto kConnectTimeout = std::chrono::seconds(10);

bool is_loopback(const sockaddr& address) {
  if (address.sa_family != AF_INET) return false;
  return (ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24) == 127;
}

std::string text_of(const sockaddr& address) {
  std::array<char, INET_ADDRSTRLEN> text{};
  const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(address);
  return inet_ntop(AF_INET, &ipv4.sin_addr, text.data(), text.size()) != nullptr ? text.data() : "";
}

void add_once(std::vector<std::string>& list, std::string address) {
  if (!address.empty() && std::find(list.begin(), list.end(), address) == list.end())
    list.push_back(std::move(address));
}

// A host name often resolves to a loopback address (Debian's 127.0.1.1): such are of no use to other hosts.
std::vector<std::string> addresses_of_this_host(const std::string& host) {
  std::vector<std::string> list;
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) == 0) {
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
    for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next)
      if (!is_loopback(*entry->ai_addr)) add_once(list, text_of(*entry->ai_addr));
  }
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) == 0) {
    const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(interfaces, &freeifaddrs);
    for (const ifaddrs* entry = interfaces; entry != nullptr; entry = entry->ifa_next)
      if (entry->ifa_addr != nullptr && entry->ifa_addr->sa_family == AF_INET && (entry->ifa_flags & IFF_UP) != 0 &&
          !is_loopback(*entry->ifa_addr))
        add_once(list, text_of(*entry->ifa_addr));
  }
  return list;
}

c10::intrusive_ptr<c10d::TCPStore> open_store(const std::string& host, std::uint16_t port, bool serves,
                                              std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.isServer = serves;
  options.waitWorkers = false;
  options.timeout = timeout;
  return c10::make_intrusive<c10d::TCPStore>(host, options);
}

[[noreturn]] void unreachable(const NcclSetup& setup, const std::string& why) {
  throw CommError(message({setup.process.rank, setup.process.size}, "nccl",
                          cat("expected to meet the other ranks over TCP, found: ", why,
                              "; check that the hosts reach each other and that no firewall is between them")));
}

// Rank 0 tells "port address address ..." or, where it could not open a port, "0 reason": nobody waits in vain.
c10::intrusive_ptr<c10d::Store> serve(const NcclSetup& setup) {
  c10::intrusive_ptr<c10d::TCPStore> store;
  std::string told;
  try {
    store = open_store("127.0.0.1", 0, true, setup.timeout);
    told = cat(store->getPort());
    if (setup.process.hosts == 1) {
      told += " 127.0.0.1";
    } else {
      for (const std::string& address : addresses_of_this_host(setup.process.host)) told += " " + address;
    }
  } catch (const std::exception& error) {
    told = cat("0 ", error.what());
  }
  setup.from_rank_0(told);
  if (!store) unreachable(setup, told.substr(2));
  return store;
}

c10::intrusive_ptr<c10d::Store> join(const NcclSetup& setup) {
  const std::string told = setup.from_rank_0({});
  std::istringstream words(told);
  std::uint16_t port = 0;
  words >> port;
  if (port == 0) unreachable(setup, cat("rank 0 opened no port (", told, ")"));
  std::string reason = "rank 0 has no network address";
  for (std::string address; words >> address;) {
    try {
      auto store =
          open_store(address, port, false, std::min<std::chrono::milliseconds>(kConnectTimeout, setup.timeout));
      store->setTimeout(setup.timeout);
      return store;
    } catch (const std::exception& error) {
      reason = cat(address, ":", port, ": ", error.what());
    }
  }
  unreachable(setup, reason);
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const NcclSetup& setup) {
  const auto store = setup.process.rank == 0 ? serve(setup) : join(setup);
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = setup.timeout;
  try {
    auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, setup.process.rank, setup.process.size, options);
    // Its threads end before MPI does, when all ranks have come to their end.
    Session::get().at_close([weak = c10::weak_intrusive_ptr<c10d::ProcessGroupNCCL>(backend)] {
      if (const auto alive = weak.lock()) alive->shutdown();
    });
    return backend;
  } catch (const std::exception& error) {
    throw UsageError(message({setup.process.rank, setup.process.size}, "nccl",
                             cat("expected a usable GPU on every rank, found: ", error.what(),
                                 "; run one rank a GPU, or move the tensor to the CPU")));
  }
}

}  // namespace accel::detail
