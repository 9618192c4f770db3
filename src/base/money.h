// Money as integers: 1 ACU = 10^12 planck. Pure. kInvalidArgument for what is not an amount, is negative, has more than twelve
// digits after the point, or is beyond nine million ACU.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pocketfleet {

inline constexpr int64_t kPlanckPerAcu = 1'000'000'000'000;

// "0.8", "14", "0.000002".
Result<int64_t> parse_acu(std::string_view text);

// The shortest text that parse_acu() reads back as the same amount; `amount_planck` not negative.
std::string format_acu(int64_t amount_planck);

}  // namespace pocketfleet
