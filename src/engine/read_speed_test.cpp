#include "engine/read_speed.h"

#include <gtest/gtest.h>

#include <limits>

namespace pocketfleet {
namespace {

TEST(ReadSpeed, TheFirstGuessHoldsUntilSomethingWasMeasured) {
  const ReadSpeed speed(100);
  EXPECT_EQ(speed.estimate_ms(0, 1000), 10'000);
  EXPECT_EQ(speed.estimate_ms(500, 500), 0);
  EXPECT_EQ(speed.estimate_ms(600, 500), 0);
}

TEST(ReadSpeed, DeepTokensAreEstimatedByWhatDeepTokensTook) {
  ReadSpeed speed(100);
  for (int round = 0; round < 20; ++round) {
    speed.observe(0, 400, 4'000);
    speed.observe(4096, 512, 10'240);
  }
  EXPECT_EQ(speed.estimate_ms(0, 500), 5'000);
  EXPECT_EQ(speed.estimate_ms(4096, 5096), 20'000);
  EXPECT_EQ(speed.estimate_ms(0, 5096), 40'960 + 20'000) << "what lies between counts as the shallower";
}

TEST(ReadSpeed, AMachineThatGetsHotIsBelievedSoon) {
  ReadSpeed speed(100);
  for (int round = 0; round < 20; ++round) speed.observe(0, 400, 4'000);
  for (int round = 0; round < 8; ++round) speed.observe(0, 400, 8'000);
  EXPECT_NEAR(static_cast<double>(speed.estimate_ms(0, 100)), 2'000, 100);
}

TEST(ReadSpeed, NonsenseIsNotTakenIn) {
  ReadSpeed speed(100);
  speed.observe(0, 3, 10'000);
  speed.observe(0, 400, -1);
  speed.observe(0, 400, 0);
  speed.observe(0, 400, std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(speed.estimate_ms(0, 100), 1'000);
  const ReadSpeed stopped(0);
  EXPECT_GT(stopped.estimate_ms(0, std::numeric_limits<size_t>::max()), 0);
}

}  // namespace
}  // namespace pocketfleet
