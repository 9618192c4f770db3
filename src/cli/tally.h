// What a run of verdicts comes to: how many of which label, right and wrong, how long requests took. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace pocketfleet::cli {

struct Confusion {
  size_t caught = 0;        // positive and flagged
  size_t missed = 0;        // positive and not flagged
  size_t false_alarms = 0;  // not positive and flagged
  size_t right = 0;         // not positive and not flagged

  void add(bool positive, bool flagged);
  size_t total() const { return caught + missed + false_alarms + right; }
  double accuracy() const;
  // 0 where there is nothing to divide by.
  double precision() const;
  double recall() const;
  double f1() const;
};

// The value below which `share` (0 to 1) of the values lie, by the nearest rank; 0 for no values.
double percentile(std::vector<double> values, double share);

// "0:07", "12:05", "3:04:05".
std::string clock_text(double seconds);

// A bar of `width` characters for a terminal.
std::string progress_bar(double share, size_t width);

}  // namespace pocketfleet::cli
