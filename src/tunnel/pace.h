// When to dial again: windows that double up to a limit, and a moment at random in each, so that a thousand agents that lost one
// relay at one moment come back spread out and not as a storm. Pure: the caller brings the random number. One thread.
#pragma once

#include <algorithm>
#include <cstdint>

namespace pocketfleet::tunnel {

struct PaceLimits {
  int64_t first_window_ms = 4'000;
  int64_t most_window_ms = 60'000;
};

class Pace {
 public:
  explicit Pace(PaceLimits limits) : limits_(limits), window_ms_(limits.first_window_ms) {}
  // How long to wait before the next try; `random` is uniform over all of its values.
  int64_t next_ms(uint32_t random) {
    const int64_t wait = static_cast<int64_t>(random / 4294967296.0 * static_cast<double>(window_ms_));
    window_ms_ = std::min(window_ms_ * 2, limits_.most_window_ms);
    return wait;
  }
  // A try has succeeded.
  void reset() { window_ms_ = limits_.first_window_ms; }

 private:
  PaceLimits limits_;
  int64_t window_ms_;
};

}  // namespace pocketfleet::tunnel
