#include "openai/classify_verdict.h"

#include <gtest/gtest.h>

namespace pocketfleet {
namespace {

Profile risk_profile() {
  Profile profile;
  for (const char* label : {"1", "2", "3", "4", "5"}) profile.labels.push_back({label, {}});
  profile.positive = {3, 4};
  return profile;
}

TEST(Verdict, TheLikeliestLabelWinsAndTheMarginIsItsLeadOverTheSecond) {
  const std::vector<std::vector<double>> one = {{0.1, 0.2, 0.05, 0.5, 0.15}};
  const Verdict verdict = make_verdict(risk_profile(), one);
  EXPECT_EQ(verdict.label, 3u);
  EXPECT_NEAR(verdict.margin, 0.3, 1e-12);
  EXPECT_NEAR(verdict.risk, 0.65, 1e-12);
  EXPECT_TRUE(verdict.flagged);
  const std::vector<std::vector<double>> first = {{0.6, 0.3, 0.1, 0, 0}};
  EXPECT_EQ(make_verdict(risk_profile(), first).label, 0u);
  EXPECT_NEAR(make_verdict(risk_profile(), first).margin, 0.3, 1e-12);
  EXPECT_FALSE(make_verdict(risk_profile(), first).flagged);
}

TEST(Verdict, ASumAtTheThresholdIsFlaggedAlsoWhenAnotherLabelIsLikelier) {
  const std::vector<std::vector<double>> one = {{0.5, 0, 0, 0.25, 0.25}};
  const Verdict verdict = make_verdict(risk_profile(), one);
  EXPECT_EQ(verdict.label, 0u);
  EXPECT_TRUE(verdict.flagged);
}

TEST(Verdict, TheRiskiestWindowCounts) {
  const std::vector<std::vector<double>> windows = {
      {0.9, 0.1, 0, 0, 0}, {0.1, 0, 0, 0.1, 0.8}, {1, 0, 0, 0, 0}, {0.1, 0, 0, 0, 0.9}};
  const Verdict verdict = make_verdict(risk_profile(), windows);
  EXPECT_EQ(verdict.riskiest, 1u) << "the first of equally risky ones";
  EXPECT_EQ(verdict.windows, 4u);
  EXPECT_EQ(verdict.label, 4u);
}

TEST(Verdict, WithoutPositiveLabelsTheLastLabelIsTheRiskiestAndNothingIsFlagged) {
  Profile profile = risk_profile();
  profile.positive.clear();
  const std::vector<std::vector<double>> windows = {{0.2, 0, 0, 0.8, 0}, {0.7, 0, 0, 0, 0.3}};
  const Verdict verdict = make_verdict(profile, windows);
  EXPECT_EQ(verdict.riskiest, 1u);
  EXPECT_FALSE(verdict.flagged);
}

TEST(Verdict, TheProfilesCalibrationDecidesUnlessItIsLeftAside) {
  Profile profile = risk_profile();
  const std::vector<std::vector<double>> one = {{0.35, 0.05, 0, 0, 0.6}};
  EXPECT_TRUE(make_verdict(profile, one).flagged);
  profile.calibration.platt = PlattLine{1, -1};
  const Verdict verdict = make_verdict(profile, one);
  EXPECT_LT(verdict.risk, 0.5);
  EXPECT_FALSE(verdict.flagged);
  EXPECT_EQ(verdict.label, 0u);
  EXPECT_EQ(make_verdict(profile, one, false).probabilities, one[0]);
  EXPECT_TRUE(make_verdict(profile, one, false).flagged);
}

}  // namespace
}  // namespace pocketfleet
