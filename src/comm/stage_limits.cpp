#include "comm/stage_limits.hpp"

#include "core/env.hpp"
#include "core/log.hpp"
#include "runtime/session.hpp"

#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <stdexcept>

namespace accel::detail {
namespace {

using Json = nlohmann::json;

// {"<host>": {"<ranks>": {"all_reduce": bytes, ...}}}; a missing limit is none.
Json read(const std::filesystem::path& file) {
  std::ifstream stream(file);
  if (!stream) return Json::object();
  Json all = Json::parse(stream);
  if (!all.is_object()) throw std::runtime_error("not an object");
  return all;
}

std::optional<Json> nearest(const Json& of_host, int ranks) {
  std::optional<Json> found;
  int distance = 0;
  for (const auto& [key, limits] : of_host.items()) {
    const int far = std::abs(std::stoi(key) - ranks);
    if (!found || far < distance) {
      found = limits;
      distance = far;
    }
  }
  return found;
}

}  // namespace

std::int64_t StageLimits::of(Operation operation) const {
  switch (operation) {
    case Operation::kAllReduce:
      return all_reduce;
    case Operation::kBroadcast:
      return broadcast;
    case Operation::kAllGather:
      return all_gather;
    case Operation::kReduceScatter:
      return reduce_scatter;
    default:
      return kAlways;
  }
}

std::int64_t best_limit(const std::vector<StageTiming>& timings) {
  double gained = 0.0;
  double most = 0.0;
  std::int64_t limit = 0;
  for (const StageTiming& timing : timings) {
    gained += std::log(timing.mpi / timing.stage);
    if (gained < most) continue;
    most = gained;
    limit = &timing == &timings.back() ? StageLimits::kAlways : timing.bytes;
  }
  return limit;
}

std::filesystem::path stage_limits_file() {
  if (const auto file = env_text("ACCEL_STAGE_LIMITS")) return *file;
  if (const auto folder = env_text("XDG_CONFIG_HOME"))
    return std::filesystem::path(*folder) / "accel/stage_limits.json";
  return std::filesystem::path(env_text("HOME").value_or(".")) / ".config/accel/stage_limits.json";
}

StageLimits read_stage_limits(const std::string& host, int ranks) {
  StageLimits limits;
  const std::filesystem::path file = stage_limits_file();
  try {
    const Json all = read(file);
    if (!all.contains(host)) return limits;
    const auto measured = nearest(all.at(host), ranks);
    if (!measured) return limits;
    limits.all_reduce = measured->value("all_reduce", limits.all_reduce);
    limits.broadcast = measured->value("broadcast", limits.broadcast);
    limits.all_gather = measured->value("all_gather", limits.all_gather);
    limits.reduce_scatter = measured->value("reduce_scatter", limits.reduce_scatter);
    return limits;
  } catch (const std::exception& error) {
    log_once("stage limits", LogLevel::kWarning, job_site(), "shared memory",
             cat("expected limits that `accel bench` wrote in ", file.string(),
                 ", found something else: ", error.what(), "; run `accel bench` again or remove the file"));
    return {};
  }
}

void save_stage_limits(const std::string& host, int ranks, const StageLimits& limits) {
  const std::filesystem::path file = stage_limits_file();
  Json all = Json::object();
  try {
    all = read(file);
  } catch (const std::exception&) {
    all = Json::object();  // what cannot be read is of no use to anybody
  }
  Json measured = Json::object();
  const auto put = [&measured](const char* name, std::int64_t limit) {
    if (limit != StageLimits::kAlways) measured[name] = limit;
  };
  put("all_reduce", limits.all_reduce);
  put("broadcast", limits.broadcast);
  put("all_gather", limits.all_gather);
  put("reduce_scatter", limits.reduce_scatter);
  all[host][std::to_string(ranks)] = measured;

  std::error_code ignored;  // what matters is whether the file can be written
  std::filesystem::create_directories(file.parent_path(), ignored);
  const std::filesystem::path aside = file.string() + ".new";
  {
    std::ofstream stream(aside);
    stream << all.dump(1) << '\n';
    if (!stream.flush()) throw std::runtime_error(cat("cannot write ", aside.string()));
  }
  std::filesystem::rename(aside, file);
}

}  // namespace accel::detail
