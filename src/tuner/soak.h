// Runs the finalists of a search long enough to get hot, in turn, and takes the one that is fastest then: the ranking of the
// first minute is not that of the thirtieth. Pure but for the clock and the probe that it is given. Errors are the probe's.
#pragma once

#include <functional>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "tuner/search.h"

namespace pocketfleet {

struct SoakResult {
  Settings settings;
  ProbeResult first;      // the first round
  ProbeResult sustained;  // the median of the last half of the rounds
  int rounds = 0;
};

using WholeProbe = std::function<Result<ProbeResult>(const Settings&)>;

// At least two rounds of each, and more until `soak_ms` have passed. The fastest when hot first.
Result<std::vector<SoakResult>> soak(const std::vector<Settings>& finalists, int64_t soak_ms, const Clock& clock,
                                     const WholeProbe& probe,
                                     const std::function<void(const Settings&, int round, int64_t passed_ms)>& on_progress);

}  // namespace pocketfleet
