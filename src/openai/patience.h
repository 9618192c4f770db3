// How long a caller can be served: when the work has to end, and by when it must be done to be worth beginning. Milliseconds of
// Clock::now_ms(); 0: no limit. A plain value.
#pragma once

#include <cstdint>

namespace pocketfleet {

struct Patience {
  int64_t deadline_ms = 0;
  int64_t admit_by_ms = 0;
};

}  // namespace pocketfleet
