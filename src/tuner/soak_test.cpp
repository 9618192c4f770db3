#include "tuner/soak.h"

#include <gtest/gtest.h>

namespace pocketfleet {
namespace {

Settings with_threads(int count) {
  Settings settings;
  for (int cpu = 0; cpu < count; ++cpu) settings.probe.cpus.push_back(cpu);
  return settings;
}

ProbeResult taking(double ms) {
  return {1000 / ms, 0, ms};
}

// C-102: a device whose speed halves after a minute of all its cores.
TEST(Soak, TheRankingOfTheFirstMinuteIsNotThatOfTheThird) {
  FakeClock clock;
  int64_t busy_ms = 0;
  const auto probe = [&](const Settings& settings) -> Result<ProbeResult> {
    const bool all = settings.probe.cpus.size() == 8;
    const double ms = all ? (busy_ms > 60'000 ? 8'000 : 4'000) : 5'000;
    clock.advance_ms(static_cast<int64_t>(ms));
    busy_ms += static_cast<int64_t>(ms);
    return taking(ms);
  };
  const auto short_run = soak({with_threads(8), with_threads(4)}, 0, clock, probe, {});
  ASSERT_TRUE(short_run);
  EXPECT_EQ(short_run->front().settings.probe.cpus.size(), 8u);
  busy_ms = 0;
  const auto hot = soak({with_threads(8), with_threads(4)}, 180'000, clock, probe, {});
  ASSERT_TRUE(hot);
  EXPECT_EQ(hot->front().settings.probe.cpus.size(), 4u);
  EXPECT_DOUBLE_EQ(hot->back().first.request_ms, 4'000);
  EXPECT_DOUBLE_EQ(hot->back().sustained.request_ms, 8'000);
  EXPECT_GT(hot->back().rounds, 5);
}

TEST(Soak, OneSlowRoundDoesNotDecide) {
  FakeClock clock;
  int calls = 0;
  const auto probe = [&](const Settings& settings) -> Result<ProbeResult> {
    clock.advance_ms(1'000);
    ++calls;
    return taking(calls == 9 ? 900 : settings.probe.cpus.size() == 1 ? 100 : 110);
  };
  const auto found = soak({with_threads(1), with_threads(2)}, 10'000, clock, probe, {});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->front().settings.probe.cpus.size(), 1u);
  EXPECT_DOUBLE_EQ(found->front().sustained.request_ms, 100);
}

TEST(Soak, AProbeThatFailsEndsIt) {
  const FakeClock clock;
  const auto found = soak({with_threads(1)}, 0, clock,
                          [](const Settings&) -> Result<ProbeResult> { return fail(ErrorCode::kCancelled, "stopped"); }, {});
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::kCancelled);
}

}  // namespace
}  // namespace pocketfleet
