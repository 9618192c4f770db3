// Picks from one row of logits without sorting a whole vocabulary of hundreds of thousands. Pure; any thread; never fails.
#pragma once

#include <cstddef>

#include "engine/types.h"

struct llama_token_data;

namespace pocketfleet {

// The first token with the largest logit; -1 when there is none (empty, or nothing but NaN and -infinity).
Token largest_logit(const float* logits, size_t count);

// Top-p: moves the likeliest candidates, whose probabilities sum to at least `p`, to the front, the likeliest first, and returns
// how many they are: at least 1 unless `count` is 0. What stands behind them is left in any order. Holtzman et al.,
// https://arxiv.org/abs/1904.09751.
size_t keep_nucleus(llama_token_data* candidates, size_t count, float p);

}  // namespace pocketfleet
