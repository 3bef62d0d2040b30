// accel launch: starts the ranks with the mpirun flags this host needs, passes signals to them, ends the job as soon as
// one rank fails, and says which.

#include "accel/launch.hpp"
#include "accel/child.hpp"
#include "accel/commands.hpp"
#include "accel/launch_plan.hpp"
#include "accel/launch_wire.hpp"
#include "accel/terminal_input.hpp"
#include "core/message.hpp"

#include <sys/wait.h>
#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <cstring>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace accel::tool {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using detail::cat;

// After the ranks were told to end, mpirun takes a second or two for its own end of the job. It is killed if it takes
// this long, and the ranks on this host with it; asked with a signal in that time it crashes.
constexpr auto kKillWithRanks = std::chrono::milliseconds(2500);
constexpr auto kKillAlone = std::chrono::seconds(10);
// How long ranks may still talk after mpirun's end.
constexpr auto kLastWords = std::chrono::milliseconds(300);
// Ranks that were sent a signal and do not all end of it are ended this long after the first that did.
constexpr auto kAfterSignal = std::chrono::seconds(10);

bool ends_programs(int signal) {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}

struct RankRecord {
  int rank = -1;
  std::string pid;
  std::string host;
  bool reported = false;
  std::shared_ptr<Line> line;
};

class Launch {
 public:
  Launch(const LaunchOptions& options, const Machine& machine) : options_(options), machine_(machine) {}

  int run() {
    ::signal(SIGPIPE, SIG_IGN);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) signals_.add(number);
    wait_for_signals();
    listen();
    start_mpirun();
    if (options_.timeout.count() > 0) {
      limit_.expires_after(options_.timeout);
      limit_.async_wait([this](const boost::system::error_code& error) {
        if (!error) fail(124, cat("the job did not end within ", options_.timeout.count() / 1000.0, " s"));
      });
    }
    context_.run();
    return exit_code();
  }

 private:
  void listen() {
    const bool remote = may_be_remote(options_);
    const auto any = remote ? asio::ip::address(asio::ip::address_v4::any()) : asio::ip::make_address("127.0.0.1");
    acceptor_ = tcp::acceptor(context_, tcp::endpoint(any, 0));
    std::string addresses;
    for (const auto& address : reachable_addresses(remote))
      addresses += cat(addresses.empty() ? "" : ",", address, " ", acceptor_.local_endpoint().port());
    wire_variables_ = {{kAddressesVariable, addresses}, {kTokenVariable, token_}};
    accept_next();
  }

  void start_mpirun() {
    const LaunchPlan plan = plan_launch(options_, machine_, {kAddressesVariable, kTokenVariable});
    say(plan.summary);
    ChildOptions child;
    child.command = plan.command;
    child.environment = plan.environment;
    child.environment.insert(child.environment.end(), wire_variables_.begin(), wire_variables_.end());
    child.standard_input = input_.descriptor_for_child();
    child.signal_on_our_death = SIGTERM;
    mpirun_ = start_child(child);
    input_.start();
  }

  void accept_next() {
    acceptor_.async_accept([this](const boost::system::error_code& error, tcp::socket socket) {
      if (error) return;
      auto record = std::make_shared<RankRecord>();
      record->line = std::make_shared<Line>(std::move(socket));
      record->line->start([this, record](const std::string& text) { on_line(record, text); },
                          [this, record] { on_closed(record); });
      open_.push_back(record);
      accept_next();
    });
  }

  void on_line(const std::shared_ptr<RankRecord>& record, const std::string& text) {
    std::istringstream words(text);
    std::string word;
    words >> word;
    if (record->rank < 0) return on_hello(record, word, words);
    int number = 0;
    int told = 0;
    words >> number >> told;
    if (word != "exit" && word != "killed") return;
    record->reported = true;
    if (word == "exit" && number == 0) return;
    const bool killed = word == "killed";
    const std::string end = killed ? cat("was killed by signal ", number, " (", ::strsignal(number), ")")
                                   : cat("exited with code ", number);
    const int code = killed ? 128 + number : number;
    if (told == 0) return fail(code, cat(name_of(*record), " ", end));
    on_told_end(code, cat(name_of(*record), " ", end));
  }

  void on_hello(const std::shared_ptr<RankRecord>& record, const std::string& word, std::istringstream& words) {
    std::string token;
    int rank = -1;
    words >> token >> rank >> record->pid >> record->host;
    if (word != "hello" || token != token_ || rank < 0) return record->line->close();
    record->rank = rank;
    if (ending_) record->line->send("end");
    if (passed_on_ != 0) record->line->send(cat("signal ", passed_on_));
  }

  // A rank that ended after it was sent a signal: of ours, then the others may still be at their last checkpoint; or of
  // mpirun, which ends the job on its own.
  void on_told_end(int code, const std::string& text) {
    if (!told_end_) told_end_ = Outcome{code, text};
    const bool all = std::all_of(open_.begin(), open_.end(), [](const auto& r) { return r->reported; });
    if (all) return end_ranks();
    if (ending_ || after_signal_started_) return;
    after_signal_started_ = true;
    after_signal_.expires_after(kAfterSignal);
    after_signal_.async_wait([this](const boost::system::error_code& error) {
      if (!error) end_ranks();
    });
  }

  void on_closed(const std::shared_ptr<RankRecord>& record) {
    record->line.reset();
    std::erase(open_, record);
    if (record->rank >= 0 && !record->reported && !lost_)
      lost_ = Outcome{1, cat(name_of(*record), " was lost with its host or its `accel rank`")};
    if (mpirun_ended_ && open_.empty()) finish();
  }

  static std::string name_of(const RankRecord& record) {
    return cat("rank ", record.rank, " (pid ", record.pid, ", host ", record.host, ")");
  }

  // The first failure is the cause; what follows is its consequence.
  void fail(int code, const std::string& text) {
    if (cause_) return;
    cause_ = Outcome{code, text};
    say(cat(text, "; ending the job"));
    end_ranks();
  }

  void end_ranks() {
    if (ending_) return;
    ending_ = true;
    for (const auto& record : open_) record->line->send("end");
    kill_mpirun_after(kKillWithRanks);
  }

  void kill_mpirun_after(std::chrono::milliseconds time) {
    kill_mpirun_.expires_after(time);
    kill_mpirun_.async_wait([this](const boost::system::error_code& error) {
      if (error || mpirun_ended_) return;
      if (open_.empty() && !last_chance_) {
        // The ranks are gone: what is left is to tidy up, on other hosts too.
        last_chance_ = true;
        kill_mpirun_after(kKillAlone);
        return;
      }
      ::kill(mpirun_, SIGKILL);
    });
  }

  void wait_for_signals() {
    signals_.async_wait([this](const boost::system::error_code& error, int number) {
      if (error) return;
      if (number == SIGCHLD)
        on_mpirun();
      else
        on_signal(number);
      wait_for_signals();
    });
  }

  void on_signal(int number) {
    if (ends_programs(number) && passed_on_ != 0) {
      say("second signal: ending the job");
      if (!told_end_) told_end_ = Outcome{128 + number, ""};
      return end_ranks();
    }
    if (ends_programs(number)) passed_on_ = number;
    if (open_.empty() && ends_programs(number)) {
      // No program runs yet that could want to end in its own way.
      told_end_ = Outcome{128 + number, ""};
      ::kill(mpirun_, SIGTERM);
      return end_ranks();
    }
    for (const auto& record : open_)
      if (record->rank >= 0) record->line->send(cat("signal ", number));
  }

  void on_mpirun() {
    int status = 0;
    if (::waitpid(mpirun_, &status, WNOHANG) != mpirun_) return;
    mpirun_ended_ = true;
    mpirun_code_ = exit_code_of(status);
    if (open_.empty()) return finish();
    last_words_.expires_after(kLastWords);
    last_words_.async_wait([this](const boost::system::error_code& error) {
      if (!error) finish();
    });
  }

  void finish() {
    input_.stop();
    context_.stop();
  }

  int exit_code() const {
    if (cause_) return cause_->code;
    if (passed_on_ != 0 && told_end_) {
      if (!told_end_->text.empty())
        say(cat(told_end_->text, " after the launcher passed on ", ::strsignal(passed_on_)));
      return told_end_->code;
    }
    if (mpirun_code_ == 0) return 0;
    if (lost_) say(lost_->text);
    return mpirun_code_;
  }

  struct Outcome {
    int code = 0;
    std::string text;
  };

  LaunchOptions options_;
  Machine machine_;
  asio::io_context context_;
  tcp::acceptor acceptor_{context_};
  asio::signal_set signals_{context_, SIGCHLD};
  asio::steady_timer limit_{context_};
  asio::steady_timer kill_mpirun_{context_};
  asio::steady_timer last_words_{context_};
  asio::steady_timer after_signal_{context_};
  TerminalInput input_{context_};
  const std::string token_ = random_token();
  std::vector<std::pair<std::string, std::string>> wire_variables_;
  std::vector<std::shared_ptr<RankRecord>> open_;
  std::optional<Outcome> cause_;
  std::optional<Outcome> told_end_;
  std::optional<Outcome> lost_;
  pid_t mpirun_ = -1;
  bool mpirun_ended_ = false;
  int mpirun_code_ = 0;
  bool ending_ = false;
  bool last_chance_ = false;
  bool after_signal_started_ = false;
  int passed_on_ = 0;  // the first signal that ends programs
};

}  // namespace

int launch(const LaunchOptions& options, bool dry_run) {
  const Machine machine = this_machine();
  if (dry_run) {
    std::cout << shell_text(plan_launch(options, machine, {kAddressesVariable, kTokenVariable})) << '\n';
    return 0;
  }
  // A program may lie on other hosts only; here it can be named before anything starts.
  if (!may_be_remote(options) && find_program(options.program.front()).empty()) {
    say(cat("expected a program, found no executable '", options.program.front(),
            "'; give its path, or a name in PATH"));
    return 127;
  }
  return Launch(options, machine).run();
}

void add_launch(CLI::App& app, CommandLine& line) {
  struct Words {
    LaunchOptions options;
    double timeout_seconds = 0;
    bool dry_run = false;
  };
  const auto words = std::make_shared<Words>();
  CLI::App* command = app.add_subcommand("launch", "start a program on several ranks with mpirun");
  command->footer("accel launch -n RANKS [options] [--] program [arguments of the program]");
  command->add_option("-n,--ranks", words->options.ranks, "number of ranks")->required()->check(CLI::Range(1, 1 << 20));
  // Each takes one word a time: the next may be the program.
  command->add_option("-x,--env", words->options.environment, "variable for the ranks: NAME or NAME=VALUE; repeatable")
      ->allow_extra_args(false);
  command->add_option("--hostfile", words->options.hostfile, "file of hosts, as mpirun reads it");
  command->add_option("--hosts", words->options.hosts, "hosts to use: a,b or a:4,b:4 (ranks a host)")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("--mpirun-arg", words->options.mpirun_arguments, "a word for mpirun itself; repeatable")
      ->allow_extra_args(false);
  command->add_option("--timeout", words->timeout_seconds, "end the job after so many seconds, with code 124")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--dry-run", words->dry_run, "print the command instead of running it");
  command->prefix_command();
  command->callback([command, words, &line] {
    words->options.program = program_of(*command, line);
    words->options.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(words->timeout_seconds * 1000));
    line.action = [words] { return launch(words->options, words->dry_run); };
  });
}

}  // namespace accel::tool
