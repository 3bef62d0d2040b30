#pragma once

// What a call that has to fail says.

#include "support/torch_doctest.hpp"

#include <exception>
#include <string>

namespace accel::test {

/// The text of the E that `call` throws; says so if it throws something else or nothing.
template <class E, class Call>
std::string error_text(Call call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("(another exception: ") + error.what() + ")";
  }
  return "(no exception)";
}

/// For CHECK; shows the text where the part is not in it.
inline bool contains(const std::string& text, const std::string& part) {
  const bool found = text.find(part) != std::string::npos;
  if (!found) MESSAGE("text: " << text << " | wanted: " << part);
  return found;
}

}  // namespace accel::test
