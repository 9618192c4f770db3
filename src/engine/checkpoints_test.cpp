#include "engine/checkpoints.h"

#include <gtest/gtest.h>

#include <map>

namespace pocketfleet {
namespace {

Tokens range(Token first, size_t count) {
  Tokens tokens;
  for (size_t index = 0; index < count; ++index) tokens.push_back(first + static_cast<Token>(index));
  return tokens;
}

Tokens joined(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(Checkpoints, TheLongestPrefixIsFound) {
  CheckpointStore store(1 << 20);
  const Tokens prompt = range(1, 100);
  EXPECT_TRUE(store.add(range(1, 10), StateBytes(100), false));
  EXPECT_TRUE(store.add(range(1, 40), StateBytes(100), false));
  EXPECT_TRUE(store.add(joined(range(1, 39), {999}), StateBytes(100), false));
  ASSERT_NE(store.find(prompt), nullptr);
  EXPECT_EQ(store.find(prompt)->tokens.size(), 40u);
  EXPECT_EQ(store.find(range(2, 50)), nullptr);
}

TEST(Checkpoints, ACheckpointOfTheWholePromptIsNotEnoughBecauseItsLastLogitsAreWanted) {
  CheckpointStore store(1 << 20);
  store.add(range(1, 40), StateBytes(100), false);
  EXPECT_EQ(store.find(range(1, 40)), nullptr);
  EXPECT_NE(store.find(range(1, 41)), nullptr);
}

TEST(Checkpoints, TheLeastUsedGoesFirstAndThePinnedStays) {
  CheckpointStore store(10'000);
  store.add(range(1, 10), StateBytes(4'000), true);
  store.add(range(100, 10), StateBytes(2'400), false);
  store.add(range(200, 10), StateBytes(2'400), false);
  EXPECT_NE(store.find(range(100, 11)), nullptr);
  store.add(range(300, 10), StateBytes(2'400), false);
  EXPECT_NE(store.peek(range(1, 11)), nullptr);
  EXPECT_NE(store.peek(range(100, 11)), nullptr);
  EXPECT_EQ(store.peek(range(200, 11)), nullptr);
  EXPECT_NE(store.peek(range(300, 11)), nullptr);
  EXPECT_EQ(store.evicted(), 1u);
  EXPECT_LE(store.bytes(), 10'000u);
}

// C-10: fifty long prompts must not grow the memory past its budget.
TEST(Checkpoints, TheBudgetHoldsWhateverIsAdded) {
  CheckpointStore store(64 << 10);
  for (int index = 0; index < 50; ++index) {
    store.add(range(index * 1000, 100), StateBytes(10'000), false);
    EXPECT_LE(store.bytes(), 64u << 10);
  }
  EXPECT_FALSE(store.add(range(-5000, 100), StateBytes(100'000), false));
  EXPECT_GT(store.count(), 0u);
}

class FakeShelf final : public CheckpointShelf {
 public:
  std::vector<Tokens> list() const override {
    std::vector<Tokens> out;
    for (const auto& [tokens, state] : states) out.push_back(tokens);
    return out;
  }
  void save(std::span<const Token> tokens, std::shared_ptr<const StateBytes> state, bool) override {
    states[Tokens(tokens.begin(), tokens.end())] = *state;
  }
  std::optional<StateBytes> load(std::span<const Token> tokens) override {
    ++loads;
    const auto found = states.find(Tokens(tokens.begin(), tokens.end()));
    if (found == states.end() || damaged) return std::nullopt;
    return found->second;
  }
  bool holds(std::span<const Token> tokens) const override { return states.contains(Tokens(tokens.begin(), tokens.end())); }
  ShelfCounters counters() const override { return {}; }

  std::map<Tokens, StateBytes> states;
  bool damaged = false;
  int loads = 0;
};

TEST(Checkpoints, WhatLiesOnTheShelfIsFoundAndBroughtBackOnce) {
  FakeShelf shelf;
  shelf.states[range(1, 10)] = StateBytes(100, 7);
  CheckpointStore store(1 << 20, &shelf);
  ASSERT_NE(store.peek(range(1, 20)), nullptr);
  EXPECT_EQ(store.peek(range(1, 20))->state, nullptr);
  EXPECT_EQ(store.bytes(), 0u);
  for (int round = 0; round < 3; ++round) {
    const Checkpoint* found = store.find(range(1, 20));
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(*found->state, StateBytes(100, 7));
  }
  EXPECT_EQ(shelf.loads, 1);
  EXPECT_EQ(store.count(), 1u);
}

TEST(Checkpoints, WhatTheShelfNoLongerHasIsForgottenAndAShorterOneIsFound) {
  FakeShelf shelf;
  shelf.states[range(1, 10)] = StateBytes(100, 7);
  CheckpointStore store(1 << 20, &shelf);
  store.add(range(1, 5), StateBytes(50), false);
  shelf.damaged = true;
  const Checkpoint* found = store.find(range(1, 20));
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->tokens.size(), 5u);
  EXPECT_FALSE(store.contains(range(1, 10)));
}

TEST(Checkpoints, PinnedOnesAndThoseOftenUsedGoOnTheShelf) {
  FakeShelf shelf;
  CheckpointStore store(1 << 20, &shelf);
  store.add(range(1, 10), StateBytes(100), true);
  EXPECT_TRUE(shelf.holds(range(1, 10)));
  store.add(range(100, 10), StateBytes(100), false);
  store.find(range(100, 20));
  EXPECT_FALSE(shelf.holds(range(100, 10)));
  store.find(range(100, 20));
  EXPECT_TRUE(shelf.holds(range(100, 10)));
  store.add(range(200, 10), StateBytes(100), false);
  EXPECT_TRUE(store.pin(range(200, 10)));
  EXPECT_TRUE(shelf.holds(range(200, 10)));
  EXPECT_FALSE(store.pin(range(300, 10)));
}

TEST(Checkpoints, AUsedOneThatIsEvictedComesBackFromTheShelf) {
  FakeShelf shelf;
  CheckpointStore store(5'000, &shelf);
  store.add(range(1, 10), StateBytes(2'400, 1), false);
  store.find(range(1, 20));
  store.add(range(100, 10), StateBytes(2'400, 2), false);
  store.add(range(200, 10), StateBytes(2'400, 3), true);
  store.add(range(300, 10), StateBytes(2'400, 4), true);
  EXPECT_EQ(store.count(), 2u);
  EXPECT_FALSE(store.contains(range(100, 10))) << "never used: not worth the disk";
  const Checkpoint* found = store.find(range(1, 20));
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(*found->state, StateBytes(2'400, 1));
  EXPECT_EQ(store.count(), 2u) << "there is no room for it beside the pinned ones";
}

TEST(Checkpoints, WhatSavesMoreTokensForEachByteStaysLonger) {
  CheckpointStore store(7'000);
  store.add(range(1, 500), StateBytes(1'000), false);
  store.add(range(1, 510), StateBytes(1'000), false);  // saves ten tokens more than the one before it
  store.add(range(1000, 100), StateBytes(1'000), false);
  EXPECT_TRUE(store.contains(range(1, 500)));
  EXPECT_FALSE(store.contains(range(1, 510)));
}

TEST(Checkpoints, AStateThatIsBeingRestoredOutlivesItsEviction) {
  CheckpointStore store(5'000);
  store.add(range(1, 10), StateBytes(3'000, 7), false);
  const auto state = store.find(range(1, 11))->state;
  store.add(range(100, 10), StateBytes(3'000), false);
  EXPECT_EQ(store.peek(range(1, 11)), nullptr);
  EXPECT_EQ((*state)[2999], 7);
}

TEST(Checkpoints, WhereAPromptLeavesAnEarlierPathIsKnown) {
  CheckpointStore store(1 << 20);
  store.remember(joined(range(1, 80), range(500, 20)));
  EXPECT_EQ(store.shared_with_recent(joined(range(1, 80), range(700, 20))), 80u);
  EXPECT_EQ(store.shared_with_recent(range(900, 10)), 0u);
}

TEST(Checkpoints, AModelThatCanBeCutUsesAnySharedBeginning) {
  CheckpointStore store(1 << 20);
  store.add(joined(range(1, 80), range(500, 20)), StateBytes(100), false);
  const auto shared = store.find_shared(joined(range(1, 80), range(700, 20)));
  ASSERT_TRUE(shared.has_value());
  EXPECT_EQ(shared->second, 80u);
  EXPECT_FALSE(store.find_shared(range(900, 5)).has_value());
}

}  // namespace
}  // namespace pocketfleet
