#include "engine/speed_probe.h"

#include <gtest/gtest.h>

#include "engine/llama_engine_test_util.h"
#include "engine/pin_thread.h"

namespace pocketfleet {
namespace {

std::unique_ptr<SpeedProbe> probe() {
  auto opened = SpeedProbe::open(kShipped + "scam-guard-q4_0.gguf");
  EXPECT_TRUE(opened) << opened.error().message;
  return *std::move(opened);
}

TEST(SpeedProbe, OneLoadOfTheWeightsServesManySettings) {
  const auto opened = probe();
  for (const int batch : {64, 256}) {
    for (const int streams : {1, 4}) {
      ProbeSettings settings;
      settings.cpus = {0};
      settings.batch_tokens = batch;
      settings.streams = streams;
      settings.kv_type = batch == 64 ? "q8_0" : "f16";
      const auto result = opened->measure(settings, {100, 2}, true, {});
      ASSERT_TRUE(result) << result.error().message;
      EXPECT_GT(result->read_tokens_per_s, 0);
      EXPECT_GT(result->write_tokens_per_s, 0);
      const double expected_ms = 100 / result->read_tokens_per_s * 1000 + 2 / result->write_tokens_per_s * 1000;
      EXPECT_NEAR(result->request_ms, expected_ms, expected_ms / 100);
    }
  }
}

TEST(SpeedProbe, ASampleOfALongPromptTellsAboutWhatTheWholeTakes) {
  const auto opened = probe();
  ProbeSettings settings;
  settings.cpus = {0};
  double sample_ms = 1e9;
  double whole_ms = 1e9;
  // The machine may be busy in one of them.
  for (int time = 0; time < 5; ++time) {
    sample_ms = std::min(sample_ms, opened->measure(settings, {8'000, 5}, false, {})->request_ms);
    whole_ms = std::min(whole_ms, opened->measure(settings, {8'000, 5}, true, {})->request_ms);
    if (std::abs(sample_ms / whole_ms - 1) < 0.1) break;
  }
  EXPECT_NEAR(sample_ms / whole_ms, 1, 0.3) << sample_ms << " and " << whole_ms << " ms";
}

TEST(SpeedProbe, WhatCannotBeMeasuredIsAnError) {
  const auto opened = probe();
  ProbeSettings settings;
  settings.cpus = {0};
  settings.kv_type = "f8";
  EXPECT_EQ(opened->measure(settings, {100, 1}, true, {}).error().code, ErrorCode::kInvalidArgument);
  settings.kv_type = "f16";
  settings.cpus = {4000};
  EXPECT_EQ(opened->measure(settings, {100, 1}, true, {}).error().code, ErrorCode::kInvalidArgument);
  settings.cpus = {0};
  EXPECT_EQ(opened->measure(settings, {0, 1}, true, {}).error().code, ErrorCode::kInvalidArgument);
  const CancelToken cancel;
  cancel.cancel();
  EXPECT_EQ(opened->measure(settings, {5'000, 1}, true, cancel).error().code, ErrorCode::kCancelled);
  EXPECT_FALSE(SpeedProbe::open("/nowhere.gguf"));
}

}  // namespace
}  // namespace pocketfleet
