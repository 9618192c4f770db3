#include "tunnel/pace.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace pocketfleet::tunnel {
namespace {

constexpr uint32_t kMost = 0xffffffff;

TEST(Pace, TheFirstTryLiesAnywhereInTheWindowAndLaterOnesInTheSecondHalfOfLargerOnes) {
  Pace pace({.first_window_ms = 1'000, .most_window_ms = 1'200});
  EXPECT_EQ(pace.next_ms(0), 0);
  EXPECT_EQ(pace.next_ms(0), 500);
  EXPECT_EQ(pace.next_ms(0), 575);
  EXPECT_EQ(pace.next_ms(0), 600);
  EXPECT_EQ(pace.next_ms(kMost), 1'199);
  pace.reset();
  EXPECT_EQ(pace.next_ms(kMost), 999);
  EXPECT_EQ(pace.next_ms(kMost), 999);
}

// A thousand agents lose one relay at one moment; it comes back after `away_ms`. Returns the busiest second over the mean one.
double storm(int64_t away_ms, uint32_t seed) {
  std::mt19937 random(seed);
  std::map<int64_t, int> seconds;
  int64_t last = away_ms;
  for (int agent = 0; agent < 1'000; ++agent) {
    Pace pace{PaceLimits{}};
    int64_t at = 0;
    do {
      at += pace.next_ms(static_cast<uint32_t>(random()));
    } while (at < away_ms);
    ++seconds[(at - away_ms) / 1'000];
    last = std::max(last, at);
  }
  int peak = 0;
  for (const auto& [second, count] : seconds) peak = std::max(peak, count);
  return peak / (1'000.0 / (static_cast<double>(last - away_ms) / 1'000.0));
}

TEST(Pace, AThousandAgentsComeBackEvenlyHoweverLongTheRelayWasAway) {
  for (const int64_t away_ms : {0, 1'000, 3'000, 10'000, 20'000, 60'000, 120'000, 600'000}) {
    for (uint32_t seed = 1; seed <= 5; ++seed) EXPECT_LT(storm(away_ms, seed), 2.0) << away_ms << " ms away, seed " << seed;
  }
}

}  // namespace
}  // namespace pocketfleet::tunnel
