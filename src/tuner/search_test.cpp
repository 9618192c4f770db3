#include "tuner/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace pocketfleet {
namespace {

Knobs phone() {
  Knobs knobs;
  knobs.cores = {{"1 fastest of 8", {7}},
                 {"2 fastest of 8", {4, 7}},
                 {"4 fastest of 8", {4, 5, 6, 7}},
                 {"all 8 cores", {0, 1, 2, 3, 4, 5, 6, 7}}};
  knobs.streams = {1, 2, 4};
  return knobs;
}

// A phone whose slow cores hold the fast ones up: four threads are best. Larger batches are better up to 256, more so with
// more threads.
double phone_ms(const Settings& settings) {
  const auto threads = static_cast<double>(settings.probe.cpus.size());
  double ms = 1000 / std::min(threads, 4.0) * (threads > 4 ? 2 : 1);
  ms *= 1 + 30.0 / settings.probe.batch_tokens * threads / 4 + (settings.probe.batch_tokens > 256 ? 0.1 : 0);
  ms *= settings.probe.flash_attention ? 1 : 1.2;
  ms *= settings.probe.kv_type == "q8_0" ? 0.97 : 1;
  return ms / (1 + 0.1 * settings.probe.streams);
}

double best_of_grid(const Knobs& knobs, double (*cost)(const Settings&)) {
  double best = 1e9;
  for (const Settings& settings : knobs.grid()) {
    if (settings.probe.kv_type == "f16") best = std::min(best, cost(settings));
  }
  return best;
}

// C-99
TEST(Search, TheBestOfAPhonesGridIsFoundWithATenthOfItsProbes) {
  const Knobs knobs = phone();
  int probes = 0;
  const Probe probe = [&](const Settings& settings) -> Result<double> {
    ++probes;
    return phone_ms(settings);
  };
  const auto trials = search_settings(knobs, probe, {});
  ASSERT_TRUE(trials) << trials.error().message;
  const Settings& found = trials->front().settings;
  EXPECT_EQ(found.probe.cpus, (std::vector<int>{4, 5, 6, 7})) << describe(found);
  EXPECT_EQ(found.probe.batch_tokens, 256);
  EXPECT_EQ(found.probe.streams, 4);
  EXPECT_EQ(found.probe.kv_type, "f16") << "3 % are not worth other answers";
  EXPECT_NEAR(phone_ms(found), best_of_grid(knobs, phone_ms), 1e-9);
  // The grid takes each of its settings as often as noise asks for, too.
  EXPECT_LT(probes, static_cast<int>(knobs.grid().size() * 3 / 10)) << knobs.grid().size();
}

TEST(Search, ANoisyMachineStillLeadsWithinTwoPercent) {
  const Knobs knobs = phone();
  std::mt19937 random(7);
  int far = 0;
  for (int time = 0; time < 200; ++time) {
    const Probe probe = [&](const Settings& settings) -> Result<double> {
      // Mostly right, now and then slowed down by something else.
      const double late = std::exponential_distribution<double>(60)(random) + (random() % 10 == 0 ? 0.5 : 0);
      return phone_ms(settings) * (1 + late);
    };
    const auto trials = search_settings(knobs, probe, {});
    ASSERT_TRUE(trials);
    Settings found = trials->front().settings;
    found.probe.kv_type = "f16";
    if (phone_ms(found) > best_of_grid(knobs, phone_ms) * 1.02) ++far;
  }
  EXPECT_LT(far, 20);
}

// C-100: on some phones requests side by side take as long as one after the other.
TEST(Search, StreamsThatGainNothingAreNotAdded) {
  Knobs knobs = phone();
  const auto trials =
      search_settings(knobs, [](const Settings& settings) -> Result<double> { return 100.0 + 3 * settings.probe.streams; }, {});
  ASSERT_TRUE(trials);
  EXPECT_EQ(trials->front().settings.probe.streams, 1) << describe(trials->front().settings);
}

TEST(Search, AMachineOnWhichNothingMattersKeepsTheUsualSettings) {
  const Knobs knobs = phone();
  const auto trials = search_settings(knobs, [](const Settings&) -> Result<double> { return 10.0; }, {});
  ASSERT_TRUE(trials);
  EXPECT_TRUE(trials->front().settings == knobs.usual()) << describe(trials->front().settings);
}

TEST(Search, AQuantisedCacheIsNeverTriedWithoutFlashAttention) {
  const auto slow_with_flash = [](const Settings& settings) -> Result<double> {
    EXPECT_TRUE(possible(settings)) << describe(settings);
    return settings.probe.flash_attention ? 200.0 : 100.0;
  };
  const auto trials = search_settings(phone(), slow_with_flash, {});
  ASSERT_TRUE(trials);
  EXPECT_FALSE(trials->front().settings.probe.flash_attention);
  for (const Settings& settings : phone().grid()) EXPECT_TRUE(possible(settings)) << describe(settings);
}

TEST(Search, AProbeThatFailsEndsTheSearchWithItsReason) {
  const auto trials =
      search_settings(phone(), [](const Settings&) -> Result<double> { return fail(ErrorCode::kCancelled, "stopped"); }, {});
  ASSERT_FALSE(trials);
  EXPECT_EQ(trials.error().code, ErrorCode::kCancelled);
}

TEST(Search, ProgressNamesWhatIsTriedAndTheBestSoFar) {
  std::vector<std::string> doing;
  double best_ms = 0;
  const auto trials = search_settings(
      phone(), [](const Settings& settings) -> Result<double> { return phone_ms(settings); },
      [&](const SearchProgress& progress) {
        if (doing.empty() || doing.back() != progress.doing) doing.push_back(progress.doing);
        best_ms = progress.best_ms;
      });
  ASSERT_TRUE(trials);
  ASSERT_GE(doing.size(), 6u);
  EXPECT_EQ(doing[1], "cores");
  EXPECT_GT(best_ms, 0);
}

TEST(Search, FinalistsAreFewAndNear) {
  std::vector<Trial> trials;
  for (int index = 0; index < 10; ++index) trials.push_back({{}, 100.0 + 4 * index, 1});
  EXPECT_EQ(finalists(trials, 5).size(), 3u);
  EXPECT_EQ(finalists(trials, 2).size(), 2u);
}

TEST(Search, TheKindsOfWorkAreThoseOfTheUsers) {
  EXPECT_EQ(work_named("review")->work.prompt_tokens, 7000);
  EXPECT_EQ(work_named("chat")->streams.back(), 4);
  EXPECT_FALSE(work_named("dance"));
}

}  // namespace
}  // namespace pocketfleet
