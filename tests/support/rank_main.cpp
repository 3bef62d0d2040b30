// The main of every test program, alone or under mpirun. Plain doctest would hang the other ranks when a REQUIRE fails
// on one, would call zero cases a success, and would pass with one rank where four were asked for.
#define DOCTEST_CONFIG_IMPLEMENT
#include <accel/process.hpp>

#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

int failures = 0;
unsigned cases_run = 0;

// Prints failures itself and first: a listener runs before the console reporter, and an abort would lose its text.
struct RankListener : doctest::IReporter {
  explicit RankListener(const doctest::ContextOptions&) {}
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats& stats) override { cases_run = stats.numTestCasesPassingFilters; }
  void test_case_start(const doctest::TestCaseData& data) override { case_ = &data; }
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}

  void test_case_exception(const doctest::TestCaseException& e) override {
    ++failures;
    std::fprintf(stderr, "[rank %d] %s: unexpected exception: %s\n", accel::process().rank, case_->m_name,
                 e.error_string.c_str());
    end_job();
  }

  void log_assert(const doctest::AssertData& data) override {
    if (!data.m_failed) return;
    ++failures;
    std::fprintf(stderr, "[rank %d] %s:%d: %s: %s -> %s%s\n", accel::process().rank, data.m_file, data.m_line,
                 case_->m_name, data.m_expr, data.m_decomp.c_str(),
                 data.m_threw ? (std::string(" threw ") + data.m_exception.c_str()).c_str() : "");
    std::fflush(stderr);
    if ((data.m_at & doctest::assertType::is_require) != 0) end_job();
  }

  // The other ranks wait in their next collective for this one, which will not come.
  void end_job() {
    std::fflush(stderr);
    if (accel::process().size > 1) accel::job_abort(1, std::string("test case failed: ") + case_->m_name);
  }

  const doctest::TestCaseData* case_ = nullptr;
};

}  // namespace

REGISTER_LISTENER("ranks", 1, RankListener);

int main(int argc, char** argv) {
  const char* expected = std::getenv("ACCEL_TEST_RANKS");
  const int ranks = accel::process().size;
  if (expected != nullptr && ranks != std::atoi(expected)) {
    std::fprintf(stderr, "this test wants %s ranks and was started with %d\n", expected, ranks);
    return 1;
  }
  doctest::Context context(argc, argv);
  if (accel::process().rank != 0) context.setOption("minimal", true);
  const int result = context.run();
  if (context.shouldExit()) return result;
  if (cases_run == 0) {
    std::fprintf(stderr, "no test case ran\n");
    return 1;
  }
  return failures > 0 ? 1 : result;
}
