#include "tuner/tuned_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace pocketfleet {
namespace {

namespace fs = std::filesystem;

class TunedStoreTest : public ::testing::Test {
 protected:
  TunedStoreTest() { fs::remove_all(folder_); }
  ~TunedStoreTest() override { fs::remove_all(folder_); }

  const std::string folder_ = (fs::temp_directory_path() / ("pf-tuned-" + std::to_string(::getpid()))).string();
  const TunedStore store_{folder_};
  const TunedKey key_{"qwen35 24 layers q4_0", "AMD EPYC, 2 cores 0-1", "0.4.0", "review"};
};

Tuned example() {
  Tuned tuned;
  tuned.settings.probe = {{0, 1}, 256, "q8_0", false, false, 4};
  tuned.sustained = {123.5, 9.25, 57'000};
  tuned.sample_ms = 51'000;
  tuned.tuned_unix_ms = 1'764'500'000'000;
  return tuned;
}

TEST_F(TunedStoreTest, WhatWasFoundIsThereAgain) {
  EXPECT_FALSE(store_.find(key_));
  ASSERT_TRUE(store_.put(key_, example()));
  const auto found = store_.find(key_);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->settings == example().settings) << describe(found->settings);
  EXPECT_DOUBLE_EQ(found->sustained.read_tokens_per_s, 123.5);
  EXPECT_EQ(found->tuned_unix_ms, example().tuned_unix_ms);
  EXPECT_DOUBLE_EQ(found->sample_ms, 51'000);
}

TEST_F(TunedStoreTest, AnotherModelDeviceBuildOrWorkHasItsOwn) {
  ASSERT_TRUE(store_.put(key_, example()));
  for (std::string TunedKey::*part : {&TunedKey::model, &TunedKey::device, &TunedKey::engine, &TunedKey::work}) {
    TunedKey other = key_;
    other.*part += "x";
    EXPECT_FALSE(store_.find(other));
  }
}

TEST_F(TunedStoreTest, TheLatestOfAnyWorkIsFound) {
  EXPECT_FALSE(store_.find_any(key_));
  Tuned tuned = example();
  ASSERT_TRUE(store_.put(key_, tuned));
  TunedKey guard = key_;
  guard.work = "guard";
  tuned.tuned_unix_ms += 1000;
  ASSERT_TRUE(store_.put(guard, tuned));
  EXPECT_EQ(store_.find_any(key_)->first, "guard");
}

TEST_F(TunedStoreTest, ADamagedFileCountsAsNotThere) {
  ASSERT_TRUE(store_.put(key_, example()));
  const fs::path file = fs::directory_iterator(folder_)->path();
  std::ifstream in(file);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  for (size_t length = 0; length + 2 < whole.size(); length += 9) {
    std::ofstream(file, std::ios::trunc) << whole.substr(0, length);
    EXPECT_FALSE(store_.find(key_)) << length;
  }
  std::string changed = whole;
  changed.replace(changed.find("\"0-1\""), 5, "\"1-0\"");
  std::ofstream(file, std::ios::trunc) << changed;
  EXPECT_FALSE(store_.find(key_));
}

TEST_F(TunedStoreTest, ADeviceIsKnownByItsProcessorAndItsCores) {
  const std::string here = device_identity();
  EXPECT_NE(here.find("core"), std::string::npos) << here;
  EXPECT_EQ(here, device_identity());
}

TEST(TunedDrift, AFifthSlowerIsTimeToTuneAgain) {
  Tuned tuned;
  tuned.sample_ms = 100;
  EXPECT_FALSE(has_drifted(80, tuned));
  EXPECT_FALSE(has_drifted(124, tuned));
  EXPECT_TRUE(has_drifted(126, tuned)) << "80 % of the speed";
}

}  // namespace
}  // namespace pocketfleet
