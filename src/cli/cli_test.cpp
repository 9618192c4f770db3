#include <gtest/gtest.h>

#include "cli/jsonl.h"
#include "cli/serve_rules.h"
#include "cli/tally.h"

namespace pocketfleet::cli {
namespace {

// C-78.
TEST(Jsonl, ARecordEndsAtALineFeedAndNowhereElse) {
  const std::string text =
      "{\"text\":\"A\xE2\x80\xA8"
      "B\",\"label\":\"x\"}\n{\"text\":\"C\xC2\x85"
      "D\xE2\x80\xA9\",\"label\":1}\r\n\n{\"text\":\"E\\u2028F\\nG\",\"label\":true}";
  const auto records = parse_records(text, "text", "label");
  ASSERT_TRUE(records) << records.error().message;
  ASSERT_EQ(records->size(), 3u);
  EXPECT_EQ((*records)[0].text,
            "A\xE2\x80\xA8"
            "B");
  EXPECT_EQ((*records)[1].text,
            "C\xC2\x85"
            "D\xE2\x80\xA9");
  EXPECT_EQ((*records)[2].text,
            "E\xE2\x80\xA8"
            "F\nG");
  EXPECT_EQ((*records)[1].expected, "1");
  EXPECT_EQ((*records)[2].expected, "true");
  EXPECT_EQ((*records)[2].line, 4u);
}

TEST(Jsonl, AWrongLineIsNamedByNumberAndItsTextIsNotRepeated) {
  for (const char* line : {"{\"secret\":1}", "{\"text\":7,\"secret\":1}", "[\"secret\"]", "secret", "{\"text\":\"secret\"}"}) {
    const auto records = parse_records(std::string("{\"text\":\"fine\",\"label\":\"a\"}\n") + line + "\n", "text", "label");
    ASSERT_FALSE(records) << line;
    EXPECT_EQ(records.error().message.find("line 2 "), 0u) << records.error().message;
    EXPECT_EQ(records.error().message.find("secret"), std::string::npos);
  }
  EXPECT_FALSE(parse_records("\n\n", "text", ""));
}

TEST(Tally, TheShippedModelsMatrixGivesItsPublishedFigures) {
  Confusion confusion{57, 5, 0, 444};
  EXPECT_EQ(confusion.total(), 506u);
  EXPECT_NEAR(confusion.accuracy(), 0.990, 0.0005);
  EXPECT_DOUBLE_EQ(confusion.precision(), 1);
  EXPECT_NEAR(confusion.recall(), 0.919, 0.0005);
  EXPECT_NEAR(confusion.f1(), 0.958, 0.0005);
  EXPECT_DOUBLE_EQ(Confusion{}.f1(), 0);
}

TEST(Tally, PercentilesAreValuesThatOccurred) {
  EXPECT_DOUBLE_EQ(percentile({}, 0.5), 0);
  EXPECT_DOUBLE_EQ(percentile({3, 1, 2}, 0.5), 2);
  EXPECT_DOUBLE_EQ(percentile({3, 1, 2}, 0.95), 3);
  EXPECT_DOUBLE_EQ(percentile({3, 1, 2}, 0), 1);
}

TEST(Tally, TimesAndBarsAreReadable) {
  EXPECT_EQ(clock_text(7.2), "0:07");
  EXPECT_EQ(clock_text(725), "12:05");
  EXPECT_EQ(clock_text(11'045), "3:04:05");
  EXPECT_EQ(progress_bar(0.5, 8), "####----");
  EXPECT_EQ(progress_bar(7, 4), "####");
}

TEST(Serve, OnlyLoopbackMayBeServedWithoutAKey) {
  for (const char* host : {"127.0.0.1", "127.1.2.3", "::1", "localhost"}) EXPECT_TRUE(is_loopback(host)) << host;
  for (const char* host :
       {"0.0.0.0", "::", "192.168.1.4", "127.evil.example", "localhost.evil.example", "", "1270.0.1", "128.0.0.1"}) {
    EXPECT_FALSE(is_loopback(host)) << host;
  }
}

TEST(Serve, AModelIsNamedAfterItsFile) {
  EXPECT_EQ(model_name_of("/models/scam-guard-q8_0.gguf"), "scam-guard-q8_0");
  EXPECT_EQ(model_name_of("model"), "model");
}

TEST(ServeRules, CheckpointsOfTwoModelsLieInTwoFoldersOfTheUsersCache) {
  const std::string one = default_checkpoint_folder("/models/a.gguf", "", "/users/x");
  EXPECT_TRUE(one.starts_with("/users/x/.cache/pocketfleet/checkpoints/")) << one;
  EXPECT_NE(one, default_checkpoint_folder("/models/b.gguf", "", "/users/x"));
  EXPECT_TRUE(default_checkpoint_folder("/models/a.gguf", "/cache", "/users/x").starts_with("/cache/pocketfleet/"));
  EXPECT_TRUE(default_checkpoint_folder("/models/a.gguf", "relative", "/users/x").starts_with("/users/x/.cache/"));
  EXPECT_EQ(default_checkpoint_folder("/models/a.gguf", "", ""), "");
}

}  // namespace
}  // namespace pocketfleet::cli
