#include "engine/ngram_draft.h"

#include <gtest/gtest.h>

namespace pocketfleet {
namespace {

TEST(NgramDraft, WhatFollowedTheLastThreeTokensIsProposedAgain) {
  NgramDraft draft(Tokens{1, 2, 3, 4, 5, 6, 9, 1, 2, 3});
  EXPECT_EQ(draft.propose(2), (Tokens{4, 5}));
  EXPECT_EQ(draft.propose(99), (Tokens{4, 5, 6, 9, 1, 2, 3}));
  draft.push(7);
  EXPECT_TRUE(draft.propose(4).empty()) << "2 3 7 is new";
}

TEST(NgramDraft, TheLatestPlaceCounts) {
  NgramDraft draft(Tokens{1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3});
  EXPECT_EQ(draft.propose(1), (Tokens{5}));
}

TEST(NgramDraft, WrittenTokensAreLearntToo) {
  NgramDraft draft(Tokens{});
  for (const Token token : {8, 9, 10, 11, 8, 9, 10}) draft.push(token);
  EXPECT_EQ(draft.propose(1), (Tokens{11}));
  EXPECT_TRUE(NgramDraft(Tokens{1, 2}).propose(3).empty());
}

TEST(NgramDraft, GuessesThatFailCeaseForAWhile) {
  NgramDraft draft(Tokens{1, 2, 3, 4, 1, 2, 3});
  for (int time = 0; time < 10; ++time) draft.judge(8, 0);
  EXPECT_TRUE(draft.propose(1).empty());
  for (int token = 0; token < 40; ++token) draft.push(100 + token);
  for (const Token token : {1, 2, 3}) draft.push(token);
  EXPECT_EQ(draft.propose(1), (Tokens{100})) << "what followed when they last stood there";
}

}  // namespace
}  // namespace pocketfleet
