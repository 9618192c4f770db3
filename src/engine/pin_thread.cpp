#include "engine/pin_thread.h"

#include <sched.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace pocketfleet {

Result<void> pin_thread(std::span<const int> cpus) {
  if (cpus.empty()) return {};
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (const int cpu : cpus) {
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &mask);
  }
  if (::sched_setaffinity(0, sizeof mask, &mask) != 0)
    return fail(ErrorCode::kInvalidArgument, std::string("these cores may not be used: ") + std::strerror(errno), "cpus");
  return {};
}

}  // namespace pocketfleet
