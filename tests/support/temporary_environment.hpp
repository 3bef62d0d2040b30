#pragma once

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

namespace accel::test {

/// Sets (or, with null, unsets) a variable for a scope.
class TemporaryVariable {
 public:
  TemporaryVariable(std::string name, const char* value) : name_(std::move(name)) {
    if (const char* before = std::getenv(name_.c_str())) before_ = before;
    set(value);
  }
  ~TemporaryVariable() { set(before_ ? before_->c_str() : nullptr); }
  TemporaryVariable(const TemporaryVariable&) = delete;
  TemporaryVariable& operator=(const TemporaryVariable&) = delete;

 private:
  void set(const char* value) {
    if (value != nullptr)
      ::setenv(name_.c_str(), value, 1);
    else
      ::unsetenv(name_.c_str());
  }

  std::string name_;
  std::optional<std::string> before_;
};

}  // namespace accel::test
