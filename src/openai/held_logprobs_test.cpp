#include "openai/held_logprobs.h"

#include <gtest/gtest.h>

#include <string>

namespace pocketfleet {
namespace {

std::vector<TokenLogprob> tokens(std::initializer_list<const char*> texts) {
  std::vector<TokenLogprob> out;
  for (const char* text : texts) out.push_back({{0, text, 0}, {}});
  return out;
}

std::string spell(const std::vector<TokenLogprob>& logprobs) {
  std::string out;
  for (const TokenLogprob& logprob : logprobs) out += "[" + logprob.chosen.bytes + "]";
  return out;
}

// C-26.
TEST(HeldLogprobs, SeveralTokensOfOnePieceAreAllGivenOut) {
  HeldLogprobs held;
  held.add(tokens({"Hel", "lo", "d"}));
  EXPECT_EQ(spell(held.take("Hellod")), "[Hel][lo][d]");
  EXPECT_EQ(spell(held.take_all()), "");
}

TEST(HeldLogprobs, WhatTheParserHoldsBackWaits) {
  HeldLogprobs held;
  held.add(tokens({"a", " <", "b"}));
  EXPECT_EQ(spell(held.take("a")), "[a]");
  EXPECT_EQ(spell(held.take(" <b")), "[ <][b]");
}

TEST(HeldLogprobs, MarksInFrontOfContentAreDropped) {
  HeldLogprobs held;
  held.add(tokens({"</think>", "\n\n", "Yes"}));
  EXPECT_EQ(spell(held.take("Yes")), "[Yes]");
}

TEST(HeldLogprobs, ContentThatRepeatsWordsOfTheReasoningKeepsItsOwnTokens) {
  HeldLogprobs held;
  held.add(tokens({"Yes", " or no", "</think>", "Y", "es"}));
  held.skip("Yes or no");
  EXPECT_EQ(spell(held.take("Yes")), "[Y][es]");
}

TEST(HeldLogprobs, BytesThatAreNoTextAreGivenOutWithTheirReplacement) {
  HeldLogprobs held;
  held.add(tokens({"\xFF"}));
  EXPECT_EQ(spell(held.take("\xEF\xBF\xBD")), "[\xFF]");
}

}  // namespace
}  // namespace pocketfleet
