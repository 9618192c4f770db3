#include "engine/token_trie.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace pocketfleet {
namespace {

TEST(TokenTrie, TheLongestBeginningIsFound) {
  TokenTrie<int> trie;
  trie.insert(Tokens{1, 2}, 12);
  trie.insert(Tokens{1, 2, 3, 4}, 1234);
  trie.insert(Tokens{1, 5}, 15);
  const Tokens path = {1, 2, 3, 4, 5};
  EXPECT_EQ(*trie.longest(path, 99)->first, 1234);
  EXPECT_EQ(trie.longest(path, 4)->second, 2u) << "shorter than four";
  EXPECT_EQ(*trie.longest(Tokens{1, 2, 3}, 99)->first, 12);
  EXPECT_FALSE(trie.longest(Tokens{2, 1}, 99));
  EXPECT_EQ(*trie.find(Tokens{1, 5}), 15);
  EXPECT_EQ(trie.find(Tokens{1}), nullptr);
  EXPECT_EQ(trie.find(Tokens{1, 2, 3}), nullptr) << "in the middle of an edge";
}

TEST(TokenTrie, WhatIsSharedWithAnySequenceIsKnownAndKeptOnce) {
  TokenTrie<int> trie;
  trie.insert(Tokens{1, 2, 3, 4}, 4);
  trie.insert(Tokens{1, 2, 3, 9}, 9);
  EXPECT_EQ(trie.tokens(), 5u);
  EXPECT_EQ(trie.shared(Tokens{1, 2, 7}).first, 2u);
  EXPECT_NE(trie.shared(Tokens{1, 2, 7}).second, nullptr);
  EXPECT_EQ(*trie.shared(Tokens{1, 2, 3, 9, 9}).second, 9);
  EXPECT_EQ(trie.shared(Tokens{7}).first, 0u);
}

TEST(TokenTrie, ErasingLeavesTheOthersAndNoEmptyNodes) {
  TokenTrie<int> trie;
  trie.insert(Tokens{1, 2, 3}, 3);
  trie.insert(Tokens{1, 2}, 2);
  trie.insert(Tokens{1, 2, 4}, 4);
  EXPECT_FALSE(trie.erase(Tokens{1}));
  EXPECT_TRUE(trie.erase(Tokens{1, 2}));
  EXPECT_FALSE(trie.erase(Tokens{1, 2}));
  EXPECT_EQ(*trie.find(Tokens{1, 2, 3}), 3);
  EXPECT_TRUE(trie.erase(Tokens{1, 2, 3}));
  EXPECT_EQ(trie.shared(Tokens{1, 2, 3}).first, 2u);
  EXPECT_EQ(*trie.find(Tokens{1, 2, 4}), 4);
  EXPECT_TRUE(trie.erase(Tokens{1, 2, 4}));
  EXPECT_EQ(trie.count(), 0u);
  EXPECT_EQ(trie.tokens(), 0u);
}

TEST(TokenTrie, DoesWhatAPlainMapDoesWhateverTheOrder) {
  std::mt19937 random(11);
  TokenTrie<int> trie;
  std::map<Tokens, int> plain;
  for (int step = 0; step < 5000; ++step) {
    Tokens tokens(random() % 7);
    for (Token& token : tokens) token = static_cast<Token>(random() % 3);
    switch (random() % 3) {
      case 0:
        trie.insert(tokens, step);
        plain[tokens] = step;
        break;
      case 1:
        EXPECT_EQ(trie.erase(tokens), plain.erase(tokens) > 0);
        break;
      default: {
        size_t shared = 0;
        size_t longest = 0;
        bool any = false;
        for (const auto& [known, value] : plain) {
          const size_t same =
              static_cast<size_t>(std::mismatch(known.begin(), known.end(), tokens.begin(), tokens.end()).first - known.begin());
          shared = std::max(shared, same);
          if (same == known.size() && known.size() < tokens.size()) {
            longest = std::max(longest, known.size());
            any = true;
          }
        }
        EXPECT_EQ(trie.shared(tokens).first, shared);
        const auto found = trie.longest(tokens, tokens.size());
        EXPECT_EQ(found.has_value(), any);
        if (found) {
          EXPECT_EQ(found->second, longest);
        }
      }
    }
    EXPECT_EQ(trie.count(), plain.size());
    const int* found = trie.find(tokens);
    const auto expected = plain.find(tokens);
    EXPECT_EQ(found != nullptr, expected != plain.end());
    if (found != nullptr) {
      EXPECT_EQ(*found, expected->second);
    }
  }
}

}  // namespace
}  // namespace pocketfleet
