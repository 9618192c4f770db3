// When to dial again. A relay that goes takes all its agents' links at one moment; they come back spread evenly over a window and
// not as a storm, however long it was away: the first try lies anywhere in the window, each later one in the second half of one
// that grows slowly up to a limit. Windows that double would leave stragglers behind a crowd. Pure: the caller brings the random
// number. One thread.
#pragma once

#include <algorithm>
#include <cstdint>

namespace pocketfleet::tunnel {

struct PaceLimits {
  int64_t first_window_ms = 10'000;
  int64_t most_window_ms = 30'000;
};

class Pace {
 public:
  explicit Pace(PaceLimits limits) : limits_(limits) { reset(); }
  // How long to wait before the next try; `random` is uniform over all of its values.
  int64_t next_ms(uint32_t random) {
    const int64_t from = first_ ? 0 : window_ms_ / 2;
    const double part = random / 4294967296.0;
    const int64_t wait = from + static_cast<int64_t>(part * static_cast<double>(window_ms_ - from));
    if (!first_) window_ms_ = std::min(window_ms_ * 23 / 20, limits_.most_window_ms);
    first_ = false;
    return wait;
  }
  // A try has succeeded.
  void reset() {
    window_ms_ = limits_.first_window_ms;
    first_ = true;
  }

 private:
  PaceLimits limits_;
  int64_t window_ms_ = 0;
  bool first_ = true;
};

}  // namespace pocketfleet::tunnel
