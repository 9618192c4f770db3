#include "engine/label_trie.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace pocketfleet {
namespace {

std::vector<std::vector<double>> uniform(const LabelTrie& trie) {
  std::vector<std::vector<double>> out;
  for (const auto& branch : trie.branches())
    out.emplace_back(branch.choices.size(), -std::log(static_cast<double>(branch.choices.size())));
  return out;
}

TEST(LabelTrie, LabelsOfOneTokenNeedNothingBeyondThePrompt) {
  const LabelTrie trie({{1}, {2}, {3}, {4}, {5}});
  EXPECT_EQ(trie.root_branch(), 0);
  EXPECT_TRUE(trie.paths().empty());
  const auto p = trie.combine({{std::log(0.1), std::log(0.2), std::log(0.3), std::log(0.15), std::log(0.25)}});
  EXPECT_NEAR(p[2], 0.3, 1e-12);
  EXPECT_NEAR(std::accumulate(p.begin(), p.end(), 0.0), 1.0, 1e-12);
}

TEST(LabelTrie, ALabelThatBeginsAnotherEndsWithTheEndToken) {
  // FRAUD and FRAUD RING and SAFE.
  const LabelTrie trie({{10}, {10, 11}, {20}});
  ASSERT_EQ(trie.branches().size(), 2u);
  EXPECT_EQ(trie.branches()[1].choices, (std::vector<Token>{kEndOfAnswer, 11}));
  ASSERT_EQ(trie.paths().size(), 1u);
  EXPECT_EQ(trie.paths()[0].tokens, (Tokens{10}));
  const auto p = trie.combine({{std::log(0.8), std::log(0.2)}, {std::log(0.75), std::log(0.25)}});
  EXPECT_NEAR(p[0], 0.8 * 0.75, 1e-12);
  EXPECT_NEAR(p[1], 0.8 * 0.25, 1e-12);
  EXPECT_NEAR(p[2], 0.2, 1e-12);
}

TEST(LabelTrie, SharedFirstTokensAreReadButNotAsked) {
  const LabelTrie trie({{7, 8, 1}, {7, 8, 2}});
  EXPECT_EQ(trie.root_branch(), -1);
  ASSERT_EQ(trie.paths().size(), 1u);
  EXPECT_EQ(trie.paths()[0].tokens, (Tokens{7, 8}));
  EXPECT_EQ(trie.paths()[0].ask, (std::vector<std::pair<size_t, int>>{{2, 0}}));
}

TEST(LabelTrie, EveryBranchIsAskedExactlyOnce) {
  std::vector<Tokens> labels;
  for (Token a = 0; a < 8; ++a) {
    for (Token b = 0; b < 8; ++b) {
      for (Token c = 0; c < 8; ++c) labels.push_back({a, b, c});
    }
  }
  const LabelTrie trie(labels);
  std::vector<int> asked(trie.branches().size(), 0);
  if (trie.root_branch() >= 0) ++asked[trie.root_branch()];
  for (const auto& path : trie.paths()) {
    for (const auto& [position, branch] : path.ask) {
      EXPECT_GE(position, 1u);
      EXPECT_LE(position, path.tokens.size());
      ++asked[branch];
    }
  }
  EXPECT_EQ(trie.branches().size(), 1u + 8u + 64u);
  for (const int times : asked) EXPECT_EQ(times, 1);
  const auto p = trie.combine(uniform(trie));
  EXPECT_EQ(p.size(), 512u);
  for (const double value : p) EXPECT_NEAR(value, 1.0 / 512, 1e-12);
}

TEST(LabelTrie, SoftmaxOverTheChoicesIgnoresAllOtherTokens) {
  std::vector<float> logits(10, 100.0f);
  logits[3] = 1.0f;
  logits[4] = 2.0f;
  const std::vector<Token> choices{3, 4};
  const auto p = log_softmax_over(logits.data(), choices, {});
  EXPECT_NEAR(std::exp(p[0]) + std::exp(p[1]), 1.0, 1e-12);
  EXPECT_NEAR(p[1] - p[0], 1.0, 1e-12);
}

TEST(LabelTrie, TheEndOfAnAnswerIsTheLikeliestOfTheModelsEndTokens) {
  std::vector<float> logits(10, 0.0f);
  logits[3] = 1.0f;
  logits[8] = 4.0f;
  const std::vector<Token> choices{kEndOfAnswer, 3};
  const std::vector<Token> ends{7, 8};
  const auto p = log_softmax_over(logits.data(), choices, ends);
  EXPECT_NEAR(p[0] - p[1], 3.0, 1e-12);
}

}  // namespace
}  // namespace pocketfleet
