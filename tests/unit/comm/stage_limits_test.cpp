#include "comm/stage_limits.hpp"

#include "support/temporary_environment.hpp"
#include "support/torch_doctest.hpp"

#include <unistd.h>
#include <filesystem>
#include <fstream>
#include <string>

using namespace accel;
using namespace accel::detail;

namespace {

struct LimitsFile {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("accel_limits_" + std::to_string(::getpid())) / "limits.json";
  test::TemporaryVariable variable{"ACCEL_STAGE_LIMITS", path.c_str()};
  ~LimitsFile() { std::filesystem::remove_all(path.parent_path()); }
};

}  // namespace

TEST_CASE("the limit is where most is gained, and one slow size in the midst does not decide") {
  CHECK(best_limit({}) == 0);
  CHECK(best_limit({{10, 1.0, 2.0}, {20, 1.0, 0.8}, {30, 1.0, 1.5}}) == StageLimits::kAlways);
  CHECK(best_limit({{10, 1.0, 2.0}, {20, 1.0, 0.5}, {30, 1.0, 0.9}}) == 10);
  CHECK(best_limit({{10, 1.0, 0.9}, {20, 1.0, 0.8}}) == 0);
}

TEST_CASE("limits are kept by host and number of ranks, and the nearest number counts") {
  const LimitsFile file;
  CHECK(read_stage_limits("here", 2).all_gather == StageLimits::kAlways);
  save_stage_limits("here", 2, {.all_gather = 100});
  save_stage_limits("here", 8, {.broadcast = 300, .all_gather = 200});
  save_stage_limits("there", 2, {.all_reduce = 7});
  CHECK(read_stage_limits("here", 2).all_gather == 100);
  CHECK(read_stage_limits("here", 3).all_gather == 100);
  CHECK(read_stage_limits("here", 16).all_gather == 200);
  CHECK(read_stage_limits("here", 16).of(Operation::kBroadcast) == 300);
  CHECK(read_stage_limits("here", 16).of(Operation::kAllReduce) == StageLimits::kAlways);
  CHECK(read_stage_limits("there", 2).of(Operation::kAllReduce) == 7);
  CHECK(read_stage_limits("elsewhere", 2).of(Operation::kAllReduce) == StageLimits::kAlways);
}

TEST_CASE("a file that is something else counts for nothing, and is written anew") {
  const LimitsFile file;
  std::filesystem::create_directories(file.path.parent_path());
  for (const char* text : {"", "[1, 2]", "{\"here\": {\"two\": {}}}", "{\"here\": {\"2\": {\"all_reduce\": \"x\"}}}"}) {
    INFO(text);
    std::ofstream(file.path) << text;
    CHECK(read_stage_limits("here", 2).all_reduce == StageLimits::kAlways);
  }
  save_stage_limits("here", 2, {.all_reduce = 9});
  CHECK(read_stage_limits("here", 2).all_reduce == 9);
}
