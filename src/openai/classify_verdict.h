// From probabilities to verdicts: the likeliest label, the margin, the flag, and over several windows of one text the riskiest of
// them. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "openai/profile.h"

namespace pocketfleet {

struct Verdict {
  size_t label = 0;  // place in the profile's labels
  std::vector<double> probabilities;
  double margin = 0;  // the likeliest minus the second
  double risk = 0;    // summed probability of the positive labels; without those, of the last label
  bool flagged = false;
  size_t windows = 1;
  size_t riskiest = 0;  // the window that counted
};

// What windows are ranked by.
double verdict_risk(const Profile& profile, std::span<const double> probabilities);

// One set of probabilities for each window, at least one. The first of equally risky windows counts. `calibrate`: after the
// profile's calibration.
Verdict make_verdict(const Profile& profile, std::span<const std::vector<double>> windows, bool calibrate = true);

}  // namespace pocketfleet
