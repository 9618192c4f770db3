#include "cli/tally.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>

namespace pocketfleet::cli {

namespace {

double ratio(size_t part, size_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

void Confusion::add(bool positive, bool flagged) {
  if (positive) {
    ++(flagged ? caught : missed);
  } else {
    ++(flagged ? false_alarms : right);
  }
}

double Confusion::accuracy() const {
  return ratio(caught + right, total());
}
double Confusion::precision() const {
  return ratio(caught, caught + false_alarms);
}
double Confusion::recall() const {
  return ratio(caught, caught + missed);
}
double Confusion::f1() const {
  return ratio(2 * caught, 2 * caught + missed + false_alarms);
}

double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const double rank = std::ceil(std::clamp(share, 0.0, 1.0) * static_cast<double>(values.size()));
  const size_t place = rank < 1 ? 0 : static_cast<size_t>(rank) - 1;
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(place), values.end());
  return values[place];
}

std::string clock_text(double seconds) {
  const auto whole = static_cast<long long>(std::clamp(seconds, 0.0, 3.0e9) + 0.5);
  char text[64];
  if (whole >= 3600) {
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
  } else {
    std::snprintf(text, sizeof text, "%lld:%02lld", whole / 60, whole % 60);
  }
  return text;
}

std::string progress_bar(double share, size_t width) {
  const auto full = static_cast<size_t>(std::clamp(share, 0.0, 1.0) * static_cast<double>(width) + 0.5);
  return std::string(full, '#') + std::string(width - full, '-');
}

}  // namespace pocketfleet::cli
