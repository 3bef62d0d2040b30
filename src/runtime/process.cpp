#include <accel/process.hpp>

#include "core/log.hpp"
#include "runtime/session.hpp"

#include <cstdio>
#include <iostream>

namespace accel {

const Process& process() {
  return detail::Session::get().process();
}

void job_abort(int code, const std::string& why) {
  detail::log(detail::LogLevel::kError, detail::job_site(), "job_abort", why);
  // Nothing runs after this line that would write what the program printed so far.
  std::cout.flush();
  std::fflush(stdout);
  detail::end_all_ranks(code);
}

}  // namespace accel
