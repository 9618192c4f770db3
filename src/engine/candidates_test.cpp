#include "engine/candidates.h"

#include <gtest/gtest.h>
#include <llama.h>

#include <cmath>
#include <limits>
#include <random>

namespace pocketfleet {
namespace {

std::vector<llama_token_data> candidates_of(const std::vector<float>& logits) {
  std::vector<llama_token_data> made;
  for (size_t index = 0; index < logits.size(); ++index) made.push_back({static_cast<Token>(index), logits[index], 0.0f});
  return made;
}

TEST(Candidates, TheFirstOfEqualLargestLogitsIsChosen) {
  for (const size_t count : {1u, 15u, 16u, 17u, 1000u}) {
    std::vector<float> logits(count, -3.0f);
    logits[count / 2] = 2.0f;
    logits[count - 1] = 2.0f;
    EXPECT_EQ(largest_logit(logits.data(), count), static_cast<Token>(count / 2)) << count;
  }
}

TEST(Candidates, NothingIsChosenWhereEveryLogitIsForbiddenOrNotANumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> logits = {nan, -INFINITY, nan};
  EXPECT_EQ(largest_logit(logits.data(), logits.size()), -1);
  EXPECT_EQ(largest_logit(logits.data(), 0), -1);
  const std::vector<float> one = {nan, -INFINITY, -7.0f, nan};
  EXPECT_EQ(largest_logit(one.data(), one.size()), 2);
}

TEST(Candidates, TheNucleusIsWhatSortingAllOfThemGives) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, 4);
  for (const float p : {0.0f, 0.1f, 0.5f, 0.9f, 0.95f, 0.999f, 1.0f}) {
    std::vector<float> logits(5000);
    for (float& logit : logits) logit = normal(random);
    auto sorted = candidates_of(logits);
    std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.logit > b.logit; });
    double total = 0;
    for (const auto& one : sorted) total += std::exp(static_cast<double>(one.logit - sorted[0].logit));
    size_t expected = 0;
    for (double sum = 0; expected < sorted.size() && (expected == 0 || sum < static_cast<double>(p) * total); ++expected)
      sum += std::exp(static_cast<double>(sorted[expected].logit - sorted[0].logit));
    auto kept = candidates_of(logits);
    const size_t count = keep_nucleus(kept.data(), kept.size(), p);
    if (p < 1.0f) {
      ASSERT_EQ(count, expected) << p;
    } else {
      // Sums in another order differ in their last bits.
      ASSERT_GE(count + 5, expected);
    }
    for (size_t index = 0; index < count; ++index) ASSERT_EQ(kept[index].id, sorted[index].id) << p << " " << index;
  }
}

TEST(Candidates, TheNucleusOfForbiddenAndFarTokensIsTheBestOne) {
  auto two = candidates_of({-INFINITY, 5.0f, -200.0f});
  EXPECT_EQ(keep_nucleus(two.data(), two.size(), 0.9f), 1u);
  EXPECT_EQ(two[0].id, 1);
  EXPECT_EQ(keep_nucleus(two.data(), 0, 0.9f), 0u);
}

}  // namespace
}  // namespace pocketfleet
