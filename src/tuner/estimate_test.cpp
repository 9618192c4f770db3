#include "tuner/estimate.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/money.h"

namespace pocketfleet {
namespace {

const DeviceProfile& device(std::string_view name) {
  const auto& all = known_devices();
  const auto found = std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.name == name; });
  EXPECT_NE(found, all.end());
  return *found;
}

Job reviews() {
  Job job;
  job.prompts = 10'000;
  job.prompt_tokens = 7'000;
  job.deadline_ms = 8 * 3'600'000;
  job.day_planck = kPlanckPerAcu;
  return job;
}

TEST(Estimate, ReviewsOnTheSmallModelCostWhatTheyWereSeenToTake) {
  const Estimate found = estimate(reviews(), device("sd8-elite-16gb"));
  ASSERT_EQ(found.reason, "");
  // 7,000 tokens at 467 a second are 15 s; five more are written.
  EXPECT_NEAR(static_cast<double>(found.verdict_ms), 15'033, 10);
  // 8 h hold 1,915 of them.
  EXPECT_EQ(found.phones, 6u);
  EXPECT_LE(found.duration_ms, 8 * 3'600'000);
  EXPECT_NEAR(found.verdicts_per_acu, 86'400 / 15.033, 15);
  EXPECT_NE(found.basis.find("published"), std::string::npos);
  EXPECT_NE(found.basis.find("7000"), std::string::npos);
}

TEST(Estimate, TheDeadlineHoldsForTheNumberOfPhonesAndNotForOneLess) {
  for (const uint64_t prompts : {1u, 7u, 999u, 123'456u}) {
    Job job = reviews();
    job.prompts = prompts;
    job.shared_tokens = 5'500;
    const Estimate enough = estimate(job, device("sd8-elite-16gb"));
    ASSERT_EQ(enough.reason, "");
    EXPECT_LE(enough.duration_ms, job.deadline_ms);
    if (enough.phones == 1) continue;
    Job less = job;
    less.phones = enough.phones - 1;
    EXPECT_GT(estimate(less, device("sd8-elite-16gb")).duration_ms, job.deadline_ms) << prompts;
  }
}

TEST(Estimate, WhatAllPromptsShareIsReadOnceAPhone) {
  Job job = reviews();
  job.phones = 1;
  job.prompts = 2;
  job.written_tokens = 0;
  const int64_t whole_ms = estimate(job, device("sd8-elite-16gb")).duration_ms;
  job.shared_tokens = 3'500;
  EXPECT_NEAR(static_cast<double>(estimate(job, device("sd8-elite-16gb")).duration_ms), 0.75 * static_cast<double>(whole_ms), 2);
}

TEST(Estimate, WhatWasMeasuredWhileColdIsNotCountedOnAPhone) {
  DeviceProfile cold = device("sd8-elite-16gb");
  cold.speeds = {{0.8, 100, 1000, 50, false}};
  Job job = reviews();
  job.burst_share = 0.5;
  EXPECT_DOUBLE_EQ(estimate(job, cold).read_tokens_per_s, 500);
  EXPECT_NE(estimate(job, cold).basis.find("50 % left when hot"), std::string::npos);
  cold.phone = false;
  EXPECT_DOUBLE_EQ(estimate(job, cold).read_tokens_per_s, 1000);
}

TEST(Estimate, AnotherSizeIsScaledWhenItIsNearAndRefusedWhenItIsNot) {
  Job job = reviews();
  job.parameters_b = 2;
  const Estimate scaled = estimate(job, device("raspberry-pi-5"));
  EXPECT_DOUBLE_EQ(scaled.read_tokens_per_s, 2 * 27.6);
  EXPECT_NE(scaled.basis.find("scaled from 4B"), std::string::npos);
  job.parameters_b = 0.5;
  EXPECT_NE(estimate(job, device("raspberry-pi-5")).reason.find("4B"), std::string::npos);
  job.parameters_b = 0.752;
  EXPECT_DOUBLE_EQ(estimate(job, device("spacemit-k3")).read_tokens_per_s, 127.6) << "the same size by another count";
}

TEST(Estimate, WhatCannotBeDoneIsAReason) {
  Job job = reviews();
  job.memory_bytes = uint64_t{20} << 30;
  EXPECT_NE(estimate(job, device("sd8-elite-16gb")).reason.find("20.0 GiB"), std::string::npos);
  job = reviews();
  job.deadline_ms = 1'000;
  EXPECT_NE(estimate(job, device("sd8-elite-16gb")).reason.find("deadline"), std::string::npos);
  DeviceProfile unknown = device("spacemit-k3");
  unknown.speeds.clear();
  EXPECT_NE(estimate(reviews(), unknown).reason, "");
}

TEST(Estimate, AJobThatCannotBeIsRefusedByName) {
  const auto field_of = [](auto change) {
    Job job = reviews();
    change(job);
    const auto checked = check(job);
    return checked ? std::string("none") : checked.error().param;
  };
  EXPECT_EQ(field_of([](Job&) {}), "none");
  EXPECT_EQ(field_of([](Job& job) { job.prompts = 0; }), "prompts");
  EXPECT_EQ(field_of([](Job& job) { job.prompt_tokens = 0; }), "length");
  EXPECT_EQ(field_of([](Job& job) { job.shared_tokens = job.prompt_tokens; }), "shared");
  EXPECT_EQ(field_of([](Job& job) { job.parameters_b = 0; }), "model");
  EXPECT_EQ(field_of([](Job& job) { job.burst_share = 0; }), "heat");
  EXPECT_EQ(field_of([](Job& job) { job.deadline_ms = 0; }), "deadline");
}

TEST(Estimate, EveryKnownDeviceSaysWhereItsFiguresAreFrom) {
  for (const DeviceProfile& each : known_devices()) {
    EXPECT_FALSE(each.source.empty()) << each.name;
    EXPECT_FALSE(each.engine.empty()) << each.name;
    EXPECT_FALSE(each.speeds.empty()) << each.name;
  }
}

}  // namespace
}  // namespace pocketfleet
