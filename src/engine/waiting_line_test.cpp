#include "engine/waiting_line.h"

#include <gtest/gtest.h>

namespace pocketfleet {
namespace {

TEST(WaitingLine, WhatIsAsShortGoesFirstAndOfTheLongOnlyOneBatch) {
  WaitingLine line;
  EXPECT_EQ(line.ahead_ms(100, 5'000), 0);
  line.add(100, 1'000);
  line.add(7'000, 80'000);
  line.add(7'000, 80'000);
  EXPECT_EQ(line.ahead_ms(100, 5'000), 6'000);
  EXPECT_EQ(line.ahead_ms(7'500, 5'000), 161'000);
  EXPECT_EQ(line.ahead_ms(2, 5'000), 5'000);
  line.clear();
  EXPECT_EQ(line.ahead_ms(7'500, 5'000), 0);
}

}  // namespace
}  // namespace pocketfleet
