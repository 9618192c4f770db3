#include "base/money.h"

#include <gtest/gtest.h>

namespace pocketfleet {
namespace {

TEST(Money, AmountsAreExactToTheLastPlanck) {
  EXPECT_EQ(*parse_acu("1"), 1'000'000'000'000);
  EXPECT_EQ(*parse_acu("0.8"), 800'000'000'000);
  EXPECT_EQ(*parse_acu("0.000000000001"), 1);
  EXPECT_EQ(*parse_acu("14.127290528"), 14'127'290'528'000);
  EXPECT_EQ(*parse_acu("9000000.999999999999"), 9'000'000'999'999'999'999);
  EXPECT_EQ(*parse_acu("0"), 0);
}

TEST(Money, WhatIsPrintedIsReadBackAsTheSame) {
  for (const int64_t planck : {int64_t{0}, int64_t{1}, int64_t{10}, int64_t{800'000'000'000}, int64_t{1'000'000'000'000},
                               int64_t{1'050'000'000'000}, int64_t{9'000'000'999'999'999'999}}) {
    EXPECT_EQ(*parse_acu(format_acu(planck)), planck) << format_acu(planck);
  }
  EXPECT_EQ(format_acu(800'000'000'000), "0.8");
  EXPECT_EQ(format_acu(14'000'000'000'000), "14");
}

TEST(Money, WhatIsNoAmountIsRefused) {
  for (const char* text : {"", ".", "-1", "1.", ".5", "1,5", "0x1", "1e3", "1.-5", "1.0000000000001", "9000001", " 1", "1 ",
                           "99999999999999999999", "1.5.5", "+1"}) {
    const auto amount = parse_acu(text);
    ASSERT_FALSE(amount) << text;
    EXPECT_EQ(amount.error().code, ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace pocketfleet
