#include "engine/read_speed.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pocketfleet {

namespace {

constexpr size_t kFirstBandTokens = 512;
constexpr double kWeightOfNew = 0.3;
// A few tokens tell more of the overhead of a call than of speed.
constexpr size_t kFewestTokens = 24;
constexpr double kSlowest_ms = 60'000;

}  // namespace

ReadSpeed::ReadSpeed(double first_tokens_per_s) : first_(1000.0 / std::max(first_tokens_per_s, 0.1)) {}

size_t ReadSpeed::band_of(size_t position) {
  size_t band = 0;
  while (band + 1 < kBands && position >= end_of(band)) ++band;
  return band;
}

size_t ReadSpeed::end_of(size_t band) {
  return band + 1 == kBands ? std::numeric_limits<size_t>::max() : kFirstBandTokens << band;
}

void ReadSpeed::observe(size_t position, size_t tokens, double ms) {
  if (tokens < kFewestTokens || !(ms > 0)) return;
  double& known = measured_[band_of(position + tokens / 2)];
  const double sample = std::min(ms / static_cast<double>(tokens), kSlowest_ms);
  known = known > 0 ? (1 - kWeightOfNew) * known + kWeightOfNew * sample : sample;
}

// Of a band that was never measured: as slow as the nearest one above the start that was, or else the nearest one deeper.
double ReadSpeed::ms_per_token(size_t band) const {
  for (size_t below = band + 1; below-- > 0;) {
    if (measured_[below] > 0) return measured_[below];
  }
  for (size_t deeper = band + 1; deeper < kBands; ++deeper) {
    if (measured_[deeper] > 0) return std::min(measured_[deeper], first_);
  }
  return first_;
}

int64_t ReadSpeed::estimate_ms(size_t from, size_t to) const {
  double sum = 0;
  while (from < to) {
    const size_t band = band_of(from);
    const size_t end = std::min(to, end_of(band));
    sum += static_cast<double>(end - from) * ms_per_token(band);
    from = end;
  }
  return static_cast<int64_t>(std::llround(std::min(sum, 1e15)));
}

}  // namespace pocketfleet
