#include "engine/golden.h"

#include <gtest/gtest.h>

#include "engine/fake_engine.h"
#include "engine/llama_engine_test_util.h"

namespace pocketfleet {
namespace {

std::string guard_prompt(const std::string& text) {
  return "<|im_start|>user\nIs this message a scam?\n" + text + "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
}

std::vector<GoldenPrompt> made(Engine& engine) {
  std::vector<GoldenPrompt> golden;
  for (const char* text : {"You have won a prize! Call 09061701461 now", "are you coming home for dinner?"}) {
    auto each = make_golden(engine, guard_prompt(text));
    EXPECT_TRUE(each) << each.error().message;
    if (each) golden.push_back(*std::move(each));
  }
  return golden;
}

void wait_until_decided(const Engine& engine) {
  while (engine.status().state == EngineState::kLoading) std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

TEST(Golden, WhatTheModelMadeOnceItMakesAgainAlsoWithOtherThreadsAndAnotherCacheType) {
  const std::vector<GoldenPrompt> golden = made(*start(guard_options()));
  ASSERT_EQ(golden.size(), 2u);
  for (const GoldenPrompt& each : golden) EXPECT_FALSE(each.tokens.empty());
  LlamaEngineOptions other = guard_options();
  other.threads = 2;
  other.kv_type = "f32";
  const auto passed = check_golden(*start(other), golden);
  EXPECT_TRUE(passed) << passed.error().message;
}

// C-64
TEST(Golden, AnotherTokenAnywhereIsRefusedAndNamed) {
  const auto engine = start(guard_options());
  const std::vector<GoldenPrompt> golden = made(*engine);
  std::vector<GoldenPrompt> wrong = golden;
  wrong[1].tokens[0] += 1;
  auto checked = check_golden(*engine, wrong);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().code, ErrorCode::kInvalidModel);
  EXPECT_NE(checked.error().message.find("golden prompt 2 of 2: the model writes something else, token 1"), std::string::npos)
      << checked.error().message;
  // C-61
  wrong = golden;
  wrong[0].prompt_tokens[3] += 1;
  checked = check_golden(*engine, wrong);
  ASSERT_FALSE(checked);
  EXPECT_NE(checked.error().message.find("golden prompt 1 of 2: its text is read as other tokens, token 4"), std::string::npos)
      << checked.error().message;
  wrong = golden;
  wrong[0].prompt_tokens.pop_back();
  EXPECT_FALSE(check_golden(*engine, wrong));
}

TEST(Golden, APromptThatLeavesTheModelInDoubtIsNotTaken) {
  const auto engine = start(guard_options());
  int refused = 0;
  for (const char* text : {"the", "a", "I", "of the", "and"}) {
    const auto golden = make_golden(*engine, text);
    if (golden) continue;
    ++refused;
    EXPECT_EQ(golden.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(golden.error().message.find("clearer prompt"), std::string::npos);
  }
  EXPECT_GT(refused, 0);
}

TEST(Golden, AModelThatPassesServesAndOneThatDoesNotGetsNoTraffic) {
  const std::vector<GoldenPrompt> golden = made(*start(guard_options()));
  const auto good = make_checked_engine(make_llama_engine(guard_options()), golden);
  wait_until_decided(*good);
  EXPECT_EQ(good->status().state, EngineState::kReady) << good->status().error.message;
  EXPECT_TRUE(make_golden(*good, golden[0].prompt));

  std::vector<GoldenPrompt> wrong = golden;
  wrong[0].tokens.back() += 1;
  const auto bad = make_checked_engine(make_llama_engine(guard_options()), wrong);
  wait_until_decided(*bad);
  EXPECT_EQ(bad->status().state, EngineState::kFailed);
  EXPECT_NE(bad->status().error.message.find("golden prompt 1 of 2"), std::string::npos) << bad->status().error.message;
  const auto refused = make_golden(*bad, golden[0].prompt);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
}

TEST(Golden, NothingIsServedWhileAModelIsBeingChecked) {
  FakeScript script;
  script.read_tokens_per_s = 1;
  const auto engine = make_checked_engine(std::make_unique<FakeEngine>(script), {{"aaaa", {97, 97, 97, 97}, {98}}});
  EXPECT_EQ(engine->status().state, EngineState::kLoading);
  const auto refused = make_golden(*engine, "x");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kLoading);
  // And it can be stopped meanwhile.
}

TEST(Golden, AModelThatCannotBeLoadedFailsAsItWould) {
  const auto engine = make_checked_engine(make_llama_engine(guard_options("/nowhere.gguf")), {});
  wait_until_decided(*engine);
  EXPECT_EQ(engine->status().state, EngineState::kFailed);
  EXPECT_NE(engine->status().error.message.find("/nowhere.gguf"), std::string::npos);
}

}  // namespace
}  // namespace pocketfleet
