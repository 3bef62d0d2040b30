#include "runtime/shared_memory.hpp"

#include "core/message.hpp"
#include "support/temporary_environment.hpp"

#include <accel/error.hpp>

#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

using namespace accel;
using namespace accel::detail;
using accel::test::TemporaryVariable;

namespace {

template <class Call>
std::string reason(Call call) {
  try {
    call();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "none";
}

int files_of_ours() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    if (entry.path().filename().string().find(cat('.', ::getpid(), '.')) != std::string::npos) ++count;
  return count;
}

}  // namespace

TEST_CASE("what one writes the other reads, in both kinds of memory, until the door is closed") {
  for (const SharedMemoryMode mode : {SharedMemoryMode::kAnonymous, SharedMemoryMode::kPosix}) {
    const std::size_t before = SharedSegment::bytes_made();
    SharedSegment made = SharedSegment::create(10000, mode);
    CHECK(SharedSegment::bytes_made() == before + 10000);
    for (std::size_t at = 0; at < 10000; ++at) REQUIRE(made.data()[at] == std::byte{0});
    const SharedSegment opened = SharedSegment::open(made.path(), 10000);
    std::strcpy(reinterpret_cast<char*>(made.data() + 5000), "seen");
    CHECK(std::strcmp(reinterpret_cast<const char*>(opened.data() + 5000), "seen") == 0);
    const SharedSegment moved = std::move(made);
    CHECK(moved.data()[5000] == std::byte{'s'});
    SharedSegment again = SharedSegment::create(100, mode);
    again.close_door();
    CHECK(reason([&] { (void)SharedSegment::open(again.path(), 100); }).find("cannot open") == 0);
    CHECK(files_of_ours() == (mode == SharedMemoryMode::kPosix ? 1 : 0));
  }
  CHECK(files_of_ours() == 0);
}

TEST_CASE("a path that leads to something else is refused, and not mapped") {
  const SharedSegment made = SharedSegment::create(4096, SharedMemoryMode::kAny);
  CHECK(reason([&] { (void)SharedSegment::open(made.path(), 8192); }).find("is not what another process") !=
        std::string::npos);
  CHECK(reason([] { (void)SharedSegment::open("/dev/null", 4096); }).find("is not what") != std::string::npos);
  CHECK(reason([] { (void)SharedSegment::open("/proc/self/fd/9999", 4096); }).find("cannot open") == 0);
}

TEST_CASE("a limit of file sizes is an error with its name, not the end of the process") {
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small{1000, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  const std::string text = reason([] { (void)SharedSegment::create(4096, SharedMemoryMode::kAny); });
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  CHECK(text == "4,096 bytes are more than the limit of files, 1,000 (ulimit -f)");
}

TEST_CASE("files that dead processes left are removed when the next is made, and no others") {
  struct stat status {};
  REQUIRE(::stat("/proc/self/ns/pid", &status) == 0);
  const std::string of_this_namespace = cat("/dev/shm/accel.", status.st_ino, '.');
  const std::string dead = cat(of_this_namespace, "2000000000.7");
  const std::string alive = cat(of_this_namespace, ::getppid(), ".7");
  const std::string elsewhere = "/dev/shm/accel.1.2000000000.7";
  for (const std::string& path : {dead, alive, elsewhere}) std::ofstream(path) << "x";
  (void)SharedSegment::create(4096, SharedMemoryMode::kPosix);
  CHECK_FALSE(std::filesystem::exists(dead));
  CHECK(std::filesystem::exists(alive));
  CHECK(std::filesystem::exists(elsewhere));
  std::filesystem::remove(alive);
  std::filesystem::remove(elsewhere);
}

TEST_CASE("ACCEL_SHARED_MEMORY says which kinds are tried, ACCEL_SHARED_MEMORY_LIMIT how much") {
  const auto mode = [](const char* text) {
    const TemporaryVariable variable("ACCEL_SHARED_MEMORY", text);
    return shared_memory_mode();
  };
  CHECK(mode(nullptr) == SharedMemoryMode::kAny);
  CHECK(mode("1") == SharedMemoryMode::kAny);
  CHECK(mode("off") == SharedMemoryMode::kOff);
  CHECK(mode("memfd") == SharedMemoryMode::kAnonymous);
  CHECK(mode("posix") == SharedMemoryMode::kPosix);
  CHECK_THROWS_AS((void)mode("sysv"), UsageError);
  CHECK(kinds_to_try(SharedMemoryMode::kAny).size() == 2);
  CHECK(kinds_to_try(SharedMemoryMode::kOff).empty());
  const auto limit = [](const char* text) {
    const TemporaryVariable variable("ACCEL_SHARED_MEMORY_LIMIT", text);
    return shared_memory_limit();
  };
  CHECK(limit("3") == std::size_t{3} << 20);
  CHECK(limit(nullptr) > std::size_t{1} << 60);
  CHECK_THROWS_AS((void)limit("-1"), UsageError);
  CHECK_THROWS_AS((void)limit("much"), UsageError);
}
