#include "engine/batch_policy.h"

#include <gtest/gtest.h>

#include <set>

namespace pocketfleet {
namespace {

Reading reading(size_t remaining, int64_t waiting_ms = 0, Priority priority = Priority::kInteractive) {
  return {remaining, remaining, waiting_ms, priority};
}

size_t total(const std::vector<Chunk>& chunks) {
  size_t sum = 0;
  for (const Chunk& chunk : chunks) sum += chunk.tokens;
  return sum;
}

TEST(BatchPolicy, AShortPromptGoesBeforeALongOne) {
  const auto chunks = plan_chunks({reading(7000), reading(50)}, {});
  ASSERT_FALSE(chunks.empty());
  EXPECT_EQ(chunks[0].index, 1u);
  EXPECT_EQ(chunks[0].tokens, 50u);
}

TEST(BatchPolicy, ALongPromptThatHasWaitedIsNotStarvedByNewcomers) {
  BatchLimits limits;
  limits.ageing_ms = 1'000;
  const auto chunks = plan_chunks({reading(7000, 60'000), reading(50, 0)}, limits);
  EXPECT_EQ(chunks[0].index, 0u);
}

TEST(BatchPolicy, BatchWorkComesAfterInteractiveWork) {
  const auto chunks = plan_chunks({reading(300, 0, Priority::kBatch), reading(500)}, {});
  EXPECT_EQ(chunks[0].index, 1u);
}

TEST(BatchPolicy, ARunningStreamWaitsNoLongerThanTheTargetGap) {
  BatchLimits limits;
  limits.read_tokens_per_s = 400;
  limits.stream_gap_ms = 250;
  limits.streams_running = true;
  EXPECT_EQ(total(plan_chunks({reading(7000)}, limits)), 100u);
  limits.streams_running = false;
  EXPECT_EQ(total(plan_chunks({reading(7000)}, limits)), 512u);
}

TEST(BatchPolicy, ASlowMachineReadsChunksThatCanBeGivenUpSoon) {
  BatchLimits limits;
  limits.read_tokens_per_s = 36;
  limits.chunk_ms = 2'000;
  EXPECT_EQ(total(plan_chunks({reading(7000)}, limits)), 72u);
}

TEST(BatchPolicy, InputsOfLikeLengthShareABatch) {
  std::vector<Reading> readings;
  for (size_t index = 0; index < 20; ++index) readings.push_back(reading(index % 2 == 0 ? 40 : 200));
  const auto chunks = plan_chunks(readings, {});
  std::set<size_t> seen;
  for (size_t index = 0; index < 10; ++index) {
    EXPECT_EQ(readings[chunks[index].index].remaining, 40u);
    EXPECT_TRUE(seen.insert(chunks[index].index).second);
  }
  EXPECT_LE(total(chunks), 512u);
}

TEST(BatchPolicy, NoChunkGoesPastACheckpoint) {
  Reading one = reading(7000);
  one.until_stop = 130;
  const auto chunks = plan_chunks({one}, {});
  ASSERT_EQ(chunks.size(), 1u);
  EXPECT_EQ(chunks[0].tokens, 130u);
}

TEST(BatchPolicy, ThereIsAlwaysProgress) {
  BatchLimits limits;
  limits.batch_tokens = 1;
  limits.read_tokens_per_s = 0.001;
  EXPECT_EQ(total(plan_chunks({reading(7000), reading(3)}, limits)), 1u);
  EXPECT_TRUE(plan_chunks({}, limits).empty());
}

}  // namespace
}  // namespace pocketfleet
