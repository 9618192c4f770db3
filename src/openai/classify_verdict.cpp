#include "openai/classify_verdict.h"

#include <algorithm>
#include <utility>

namespace pocketfleet {

double verdict_risk(const Profile& profile, std::span<const double> probabilities) {
  if (probabilities.empty()) return 0;
  if (profile.positive.empty()) return probabilities.back();
  double sum = 0;
  for (const size_t place : profile.positive) sum += place < probabilities.size() ? probabilities[place] : 0;
  return sum;
}

Verdict make_verdict(const Profile& profile, std::span<const std::vector<double>> windows, bool calibrate) {
  Verdict verdict;
  verdict.windows = windows.size();
  verdict.risk = -1;
  for (size_t index = 0; index < windows.size(); ++index) {
    std::vector<double> probabilities =
        calibrate ? calibrated(profile.calibration, windows[index], profile.positive) : windows[index];
    if (const double risk = verdict_risk(profile, probabilities); risk > verdict.risk) {
      verdict.risk = risk;
      verdict.riskiest = index;
      verdict.probabilities = std::move(probabilities);
    }
  }
  const auto& probabilities = verdict.probabilities;
  double second = 0;
  for (size_t place = 1; place < probabilities.size(); ++place) {
    if (probabilities[place] > probabilities[verdict.label]) {
      second = probabilities[verdict.label];
      verdict.label = place;
    } else {
      second = std::max(second, probabilities[place]);
    }
  }
  if (!probabilities.empty()) verdict.margin = probabilities[verdict.label] - second;
  verdict.flagged = !profile.positive.empty() && verdict.risk >= profile.threshold;
  return verdict;
}

}  // namespace pocketfleet
