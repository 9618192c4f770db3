#include "openai/profile_lint.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/fake_engine.h"

namespace pocketfleet {
namespace {

// The fake engine's tokens are bytes.
ProfileLint lint(const Json& input, const std::string& instructions) {
  Json json = {{"name", "x"}, {"instructions", instructions}, {"labels", {"yes", "no"}}, {"answer_prefix", "SAY "}};
  if (!input.is_null()) json["input"] = input;
  const auto profile = parse_profile(json.dump());
  EXPECT_TRUE(profile) << profile.error().message;
  FakeEngine engine;
  const auto linted = lint_profile(engine, *profile, 10);
  EXPECT_TRUE(linted) << linted.error().message;
  return *linted;
}

TEST(ProfileLint, InstructionsBeforeTheInputAreReadOnce) {
  const ProfileLint lint_ = lint(nullptr, "Is it so?");
  EXPECT_GE(lint_.fixed_tokens, 9u);
  EXPECT_EQ(lint_.behind_input_tokens, 0u);
  EXPECT_EQ(lint_.answer_tokens, 4u);
  EXPECT_GE(lint_.per_input_tokens, 4u);
  EXPECT_TRUE(lint_.warnings.empty());
}

TEST(ProfileLint, InstructionsBehindTheInputCostTheirTokensEachTime) {
  const ProfileLint lint_ = lint({{"template", "{input}\n\n{instructions}"}}, "Is it so?");
  EXPECT_EQ(lint_.behind_input_tokens, 11u);
  ASSERT_EQ(lint_.warnings.size(), 1u);
  EXPECT_NE(lint_.warnings[0].find("the instructions stand behind the input: 11 tokens"), std::string::npos) << lint_.warnings[0];
  EXPECT_NE(lint_.warnings[0].find("1.1 s at 10 tokens/s"), std::string::npos) << lint_.warnings[0];
}

TEST(ProfileLint, AShortQuestionBehindTheInputIsAllRight) {
  EXPECT_TRUE(lint({{"template", "{input}\nRisky?"}}, "Is it so?").warnings.empty());
  EXPECT_EQ(lint({{"template", "{input}\nHow risky is all of that, would you say?"}}, "Is it so?").warnings.size(), 1u);
}

}  // namespace
}  // namespace pocketfleet
