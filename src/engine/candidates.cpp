#include "engine/candidates.h"

#include <llama.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace pocketfleet {

namespace {

constexpr size_t kLanes = 16;
// Candidates are counted by how far they lie below the best one: 1/16 of a nat a bin, the last one holds all that is further off.
constexpr size_t kBins = 512;
constexpr float kBinsPerNat = 16.0f;

float largest_value(const float* logits, size_t count) {
  // Lanes of their own let the compiler use vector registers, which the rules for NaN forbid for one running maximum.
  std::array<float, kLanes> lanes;
  lanes.fill(-INFINITY);
  size_t index = 0;
  for (; index + kLanes <= count; index += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] = logits[index + lane] > lanes[lane] ? logits[index + lane] : lanes[lane];
  }
  for (; index < count; ++index) lanes[0] = logits[index] > lanes[0] ? logits[index] : lanes[0];
  return *std::max_element(lanes.begin(), lanes.end());
}

size_t bin_of(float logit, float largest) {
  const float distance = (largest - logit) * kBinsPerNat;
  return distance < static_cast<float>(kBins - 1) ? static_cast<size_t>(distance) : kBins - 1;
}

}  // namespace

Token largest_logit(const float* logits, size_t count) {
  const float largest = largest_value(logits, count);
  if (largest == -INFINITY) return -1;
  return static_cast<Token>(std::find(logits, logits + count, largest) - logits);
}

size_t keep_nucleus(llama_token_data* candidates, size_t count, float p) {
  if (count == 0) return 0;
  float largest = -INFINITY;
  for (size_t index = 0; index < count; ++index) largest = std::max(largest, candidates[index].logit);
  std::array<double, kBins> mass{};
  double total = 0;
  for (size_t index = 0; index < count; ++index) {
    const float logit = candidates[index].logit;
    const double weight = std::exp(static_cast<double>(logit - largest));
    mass[bin_of(logit, largest)] += weight;
    total += weight;
  }
  const double wanted = static_cast<double>(p) * total;
  size_t last_bin = 0;
  for (double sum = mass[0]; sum < wanted && last_bin + 1 < kBins; sum += mass[++last_bin]) {
  }
  const auto end = std::partition(candidates, candidates + count,
                                  [&](const llama_token_data& one) { return bin_of(one.logit, largest) <= last_bin; });
  std::sort(candidates, end, [](const llama_token_data& a, const llama_token_data& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  });
  double sum = 0;
  for (llama_token_data* one = candidates; one != end; ++one) {
    sum += std::exp(static_cast<double>(one->logit - largest));
    if (sum >= wanted) return static_cast<size_t>(one - candidates) + 1;
  }
  return std::max<size_t>(1, static_cast<size_t>(end - candidates));
}

}  // namespace pocketfleet
