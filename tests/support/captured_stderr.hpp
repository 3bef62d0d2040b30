#pragma once

#include <unistd.h>
#include <array>
#include <cstdio>
#include <stdexcept>
#include <string>

namespace accel::test {

/// Collects what this process writes to stderr while it lives.
class CapturedStderr {
 public:
  CapturedStderr() : file_(std::tmpfile()), before_(::dup(STDERR_FILENO)) {
    if (file_ == nullptr || before_ < 0) throw std::runtime_error("cannot capture stderr");
    std::fflush(stderr);
    ::dup2(::fileno(file_), STDERR_FILENO);
  }
  ~CapturedStderr() {
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
    std::fclose(file_);
  }
  CapturedStderr(const CapturedStderr&) = delete;
  CapturedStderr& operator=(const CapturedStderr&) = delete;

  [[nodiscard]] std::string text() const {
    std::string all;
    std::array<char, 4096> buffer{};
    for (off_t at = 0;;) {
      const ssize_t read = ::pread(::fileno(file_), buffer.data(), buffer.size(), at);
      if (read <= 0) return all;
      all.append(buffer.data(), static_cast<std::size_t>(read));
      at += read;
    }
  }

 private:
  std::FILE* file_;
  int before_;
};

}  // namespace accel::test
