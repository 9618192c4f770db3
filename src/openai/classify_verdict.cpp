#include "openai/classify_verdict.h"

#include <algorithm>

namespace pocketfleet {

double verdict_risk(const Profile& profile, std::span<const double> probabilities) {
  if (probabilities.empty()) return 0;
  if (profile.positive.empty()) return probabilities.back();
  double sum = 0;
  for (const size_t place : profile.positive) sum += place < probabilities.size() ? probabilities[place] : 0;
  return sum;
}

Verdict make_verdict(const Profile& profile, std::span<const std::vector<double>> windows) {
  Verdict verdict;
  verdict.windows = windows.size();
  verdict.risk = -1;
  for (size_t index = 0; index < windows.size(); ++index) {
    if (const double risk = verdict_risk(profile, windows[index]); risk > verdict.risk) {
      verdict.risk = risk;
      verdict.riskiest = index;
    }
  }
  verdict.probabilities = windows[verdict.riskiest];
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
