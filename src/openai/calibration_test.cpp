#include "openai/calibration.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

namespace pocketfleet {
namespace {

const std::vector<size_t> kLast = {2};

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// Verdicts that are `factor` times as sure, in log-odds, as they are right.
std::vector<CalibrationExample> overconfident(size_t count, double factor, bool with_gold) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> uniform(0, 1);
  std::vector<CalibrationExample> examples;
  for (size_t index = 0; index < count; ++index) {
    const double truth = 0.02 + 0.96 * uniform(random);
    const bool positive = uniform(random) < truth;
    const double said = 1 / (1 + std::exp(-factor * std::log(truth / (1 - truth))));
    CalibrationExample example;
    example.probabilities = {1 - said, 0, said};
    example.is_positive = positive;
    if (with_gold) example.gold = positive ? 2 : 0;
    examples.push_back(std::move(example));
  }
  return examples;
}

TEST(Calibration, TheEmptyOneChangesNothing) {
  const std::vector<double> p = {0.2, 0.3, 0.5};
  EXPECT_EQ(calibrated({}, p, kLast), p);
  EXPECT_TRUE(Calibration{}.empty());
}

TEST(Calibration, ProbabilitiesGoOnToSumToOne) {
  const std::vector<std::vector<double>> given = {{0.2, 0.3, 0.5}, {1, 0, 0}, {0, 0, 1}, {1e-300, 1e-300, 1}, {0.5, 0.5, 0}};
  for (const auto& p : given) {
    for (const double temperature : {0.05, 0.5, 1.0, 3.0, 20.0}) {
      for (const bool line : {false, true}) {
        Calibration calibration;
        calibration.temperature = temperature;
        if (line) calibration.platt = PlattLine{0.7, -1.5};
        const std::vector<double> after = calibrated(calibration, p, kLast);
        EXPECT_NEAR(sum(after), 1, 1e-9);
        for (const double value : after) {
          EXPECT_GE(value, 0);
          EXPECT_LE(value, 1);
        }
      }
    }
  }
}

TEST(Calibration, ATemperatureAboveOneMakesLessSureAndKeepsTheOrder) {
  const std::vector<double> p = {0.1, 0.2, 0.7};
  const std::vector<double> after = calibrated({2, std::nullopt}, p, kLast);
  EXPECT_LT(after[2], p[2]);
  EXPECT_GT(after[1], after[0]);
  EXPECT_GT(after[2], after[1]);
  EXPECT_NEAR(after[2] / after[1], std::sqrt(3.5), 1e-9);
}

TEST(Calibration, PlattsLineMovesThePositiveLabelsAndKeepsTheOthersShares) {
  const std::vector<double> p = {0.3, 0.1, 0.6};
  const std::vector<double> after = calibrated({1, PlattLine{1, 1}}, p, kLast);
  EXPECT_NEAR(std::log(after[2] / (1 - after[2])), std::log(0.6 / 0.4) + 1, 1e-9);
  EXPECT_NEAR(after[0] / after[1], 3, 1e-9);
}

TEST(Calibration, FittingFindsHowMuchTooSureTheVerdictsAre) {
  const auto with_gold = overconfident(4000, 3, true);
  const auto temperature = fit_calibration(CalibrationMethod::kTemperature, with_gold, kLast);
  ASSERT_TRUE(temperature);
  EXPECT_NEAR(temperature->temperature, 3, 0.25);
  const auto without_gold = overconfident(4000, 3, false);
  const auto line = fit_calibration(CalibrationMethod::kPlatt, without_gold, kLast);
  ASSERT_TRUE(line);
  EXPECT_NEAR(line->platt->slope, 1.0 / 3, 0.03);
  EXPECT_NEAR(line->platt->offset, 0, 0.1);
}

TEST(Calibration, TheErrorFallsOnExamplesThatWereNotFittedTo) {
  const auto examples = overconfident(2000, 3, false);
  const CalibrationScore before = score_calibration({}, examples, kLast);
  for (const CalibrationMethod method : {CalibrationMethod::kTemperature, CalibrationMethod::kPlatt}) {
    const auto after = cross_validated_score(method, examples, kLast);
    ASSERT_TRUE(after);
    EXPECT_GT(before.expected_calibration_error, 0.1);
    EXPECT_LT(after->expected_calibration_error, 0.04);
    EXPECT_LT(after->negative_log_likelihood, before.negative_log_likelihood);
    EXPECT_LT(after->brier, before.brier);
  }
}

TEST(Calibration, TheExpectedCalibrationErrorIsTheDistanceOfConfidenceFromTruth) {
  std::vector<CalibrationExample> examples(10);
  for (size_t index = 0; index < examples.size(); ++index) {
    examples[index].probabilities = {0.1, 0, 0.9};
    examples[index].is_positive = index < 6;
  }
  EXPECT_NEAR(score_calibration({}, examples, kLast).expected_calibration_error, 0.3, 1e-9);
}

TEST(Calibration, TooFewExamplesOrExamplesOfOneKindAreRefused) {
  auto examples = overconfident(9, 1, false);
  EXPECT_FALSE(fit_calibration(CalibrationMethod::kTemperature, examples, kLast));
  examples = overconfident(50, 1, false);
  EXPECT_FALSE(fit_calibration(CalibrationMethod::kPlatt, examples, {})) << "no positive labels";
  for (CalibrationExample& example : examples) example.is_positive = true;
  EXPECT_FALSE(fit_calibration(CalibrationMethod::kPlatt, examples, kLast));
}

TEST(Calibration, VerdictsThatAreAlwaysRightStayFinite) {
  std::vector<CalibrationExample> examples(40);
  for (size_t index = 0; index < examples.size(); ++index) {
    examples[index].is_positive = index % 2 == 0;
    examples[index].probabilities = examples[index].is_positive ? std::vector<double>{0, 0, 1} : std::vector<double>{1, 0, 0};
  }
  for (const CalibrationMethod method : {CalibrationMethod::kTemperature, CalibrationMethod::kPlatt}) {
    const auto fitted = fit_calibration(method, examples, kLast);
    ASSERT_TRUE(fitted);
    EXPECT_TRUE(std::isfinite(fitted->temperature));
    if (fitted->platt) {
      EXPECT_TRUE(std::isfinite(fitted->platt->slope) && std::isfinite(fitted->platt->offset));
    }
  }
}

}  // namespace
}  // namespace pocketfleet
