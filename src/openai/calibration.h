// Calibration: makes the probabilities of verdicts mean what they say, so that of a hundred verdicts given with 0.9 about ninety
// are right. A temperature for all labels, or Platt's line for the summed probability of the positive ones. Fitting wants
// labelled examples and is deterministic. Pure; no errors but too few examples.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"

namespace pocketfleet {

// log-odds after = slope * log-odds before + offset (J. Platt, Probabilistic Outputs for Support Vector Machines, 1999).
struct PlattLine {
  double slope = 1;
  double offset = 0;
};

struct Calibration {
  double temperature = 1;  // over 1: less sure; C. Guo et al., On Calibration of Modern Neural Networks, 2017
  std::optional<PlattLine> platt;

  bool empty() const { return temperature == 1 && !platt; }
};

// Probabilities of all labels after calibration; they sum to 1 as before. `positive`: places of the labels that Platt's line
// speaks of; without them it has no effect.
std::vector<double> calibrated(const Calibration& calibration, std::span<const double> probabilities,
                               std::span<const size_t> positive);
// The line applied to one probability, which stays between 0 and 1.
double apply(const PlattLine& line, double probability);

// One labelled example. Either the right label is known (`gold`), or only whether it is among the positive ones (`is_positive`).
struct CalibrationExample {
  std::vector<double> probabilities;
  std::optional<size_t> gold;
  bool is_positive = false;
};

enum class CalibrationMethod { kTemperature, kPlatt };

// Needs at least ten examples, and of both kinds for Platt's line. With `gold`, the temperature fits the labels; without, the
// summed probability of `positive`.
Result<Calibration> fit_calibration(CalibrationMethod method, std::span<const CalibrationExample> examples,
                                    std::span<const size_t> positive);

// How far probabilities are from what happens.
struct CalibrationScore {
  double expected_calibration_error = 0;  // over 15 bins of equal width
  double negative_log_likelihood = 0;
  double brier = 0;
};

CalibrationScore score_calibration(const Calibration& calibration, std::span<const CalibrationExample> examples,
                                   std::span<const size_t> positive);

// What the score would be on examples that were not fitted to: each fifth is scored after fitting the other four.
Result<CalibrationScore> cross_validated_score(CalibrationMethod method, std::span<const CalibrationExample> examples,
                                               std::span<const size_t> positive);

}  // namespace pocketfleet
