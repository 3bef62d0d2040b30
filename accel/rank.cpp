// accel rank: stands between mpirun and the program of one rank. mpirun takes seconds to see that a rank is gone, and
// some ends it does not report at all; this process sees each at once, tells the launcher, and lets no program outlive
// its job.
//
//   mpirun -> accel rank -> program
//                 |
//                 +-- TCP -- accel launch

#include "accel/child.hpp"
#include "accel/commands.hpp"
#include "accel/launch_wire.hpp"
#include "core/env.hpp"
#include "core/message.hpp"
#include "runtime/host.hpp"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>

namespace accel::tool {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using detail::cat;
using detail::env_text;

// Between asking the program to end and ending it.
constexpr auto kGrace = std::chrono::milliseconds(500);
constexpr auto kConnect = std::chrono::seconds(2);

class Rank {
 public:
  explicit Rank(std::vector<std::string> program) : program_(std::move(program)) {}

  int run() {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::signal(SIGPIPE, SIG_IGN);
    connect();
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) signals_.add(number);
    wait_for_signals();
    ChildOptions options;
    options.command = program_;
    options.unset = {kAddressesVariable, kTokenVariable};
    options.signal_on_our_death = SIGKILL;
    child_ = start_child(options);
    if (line_) greet();
    context_.run();
    // The launcher knows the code. mpirun would take a second for an end of its own if it saw it too.
    return ending_ && line_ ? 0 : exit_code_;
  }

 private:
  // Tries the launcher's addresses one after the other. Without a connection the rank runs under mpirun's rules.
  void connect() {
    std::istringstream addresses(env_text(kAddressesVariable).value_or(""));
    for (std::string address; !line_ && std::getline(addresses, address, ',');) {
      std::istringstream words(address);
      std::string host;
      unsigned short port = 0;
      if (words >> host >> port) try_address(host, port);
    }
    if (!line_) say("a rank cannot reach its launcher: mpirun alone watches it");
  }

  void try_address(const std::string& host, unsigned short port) {
    boost::system::error_code error;
    const auto address = asio::ip::make_address(host, error);
    if (error) return;
    tcp::socket socket(context_);
    bool connected = false;
    socket.async_connect({address, port}, [&](const boost::system::error_code& failed) { connected = !failed; });
    context_.restart();
    context_.run_for(kConnect);
    if (!connected) {
      socket.close(error);
      context_.restart();
      context_.run();  // the cancelled handler refers to this frame
      return;
    }
    line_ = std::make_shared<Line>(std::move(socket));
    context_.restart();
  }

  void greet() {
    line_->start([this](const std::string& text) { on_order(text); },
                 [this] {
                   line_.reset();
                   end();
                 });
    const std::string rank = env_text("OMPI_COMM_WORLD_RANK").value_or("0");
    line_->send(
        cat("hello ", env_text(kTokenVariable).value_or("none"), " ", rank, " ", child_, " ", detail::host_name()));
  }

  void wait_for_signals() {
    signals_.async_wait([this](const boost::system::error_code& error, int number) {
      if (error) return;
      if (number == SIGCHLD)
        on_child();
      else
        pass_on(number);
      if (!ended_) wait_for_signals();
    });
  }

  void pass_on(int number) {
    told_ = told_ || number == SIGTERM || number == SIGINT || number == SIGHUP || number == SIGQUIT;
    ::kill(child_, number);
  }

  void on_order(const std::string& text) {
    std::istringstream words(text);
    std::string order;
    int number = 0;
    words >> order >> number;
    if (order == "signal") pass_on(number);
    if (order == "end") end();
  }

  void on_child() {
    int status = 0;
    if (::waitpid(child_, &status, WNOHANG) != child_) return;
    ended_ = true;
    exit_code_ = exit_code_of(status);
    if (line_) {
      if (WIFEXITED(status))
        line_->send(cat("exit ", exit_code_, " ", told_ ? 1 : 0));
      else
        line_->send(cat("killed ", WTERMSIG(status), " ", told_ ? 1 : 0));
    }
    if (exit_code_ == 0) return finish();
    // What the program started goes with it.
    ::kill(-child_, SIGKILL);
    // Otherwise the launcher decides when: mpirun would end the other ranks as soon as it sees this exit code.
    if (!line_ || ending_) finish();
  }

  void end() {
    if (ending_) return;
    ending_ = true;
    if (ended_) return finish();
    told_ = true;
    ::kill(-child_, SIGTERM);
    ::kill(-child_, SIGCONT);
    grace_.expires_after(kGrace);
    grace_.async_wait([this](const boost::system::error_code& error) {
      if (!error && !ended_) ::kill(-child_, SIGKILL);
    });
  }

  // Lets what was sent go out, then nothing is left to wait for.
  void finish() {
    signals_.cancel();
    grace_.cancel();
    if (!line_) return;
    asio::post(context_, [this] {
      if (line_) line_->finish();
    });
  }

  std::vector<std::string> program_;
  asio::io_context context_;
  asio::signal_set signals_{context_, SIGCHLD};
  asio::steady_timer grace_{context_};
  std::shared_ptr<Line> line_;
  pid_t child_ = -1;
  bool told_ = false;    // a signal that ends programs was passed on
  bool ending_ = false;  // the launcher wants the end, or is gone
  bool ended_ = false;   // the program is
  int exit_code_ = 0;
};

}  // namespace

void add_rank(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("rank", "run the program of one rank (accel launch calls it)")->group("");
  command->prefix_command();
  command->callback(
      [command, &line] { line.action = [program = program_of(*command, line)] { return Rank(program).run(); }; });
}

}  // namespace accel::tool
