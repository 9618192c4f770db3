// How long the work is that goes before a newcomer. Short prompts go before long ones, so of what waits only what is about as
// short counts in full; of the rest no more than the batch that may be running. Pure value.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace pocketfleet {

class WaitingLine {
 public:
  // A prompt with so many tokens left to read, which will take `ms`.
  void add(size_t tokens, int64_t ms) { by_size_[size_class(tokens)] += ms; }
  void clear() { by_size_.fill(0); }

  // For a newcomer of `tokens`; `batch_ms`: what one batch may take.
  int64_t ahead_ms(size_t tokens, int64_t batch_ms) const {
    int64_t shorter = 0;
    int64_t longer = 0;
    for (size_t index = 0; index < by_size_.size(); ++index) (index <= size_class(tokens) ? shorter : longer) += by_size_[index];
    return shorter + std::min(longer, batch_ms);
  }

 private:
  // Twice as long is the next class.
  static size_t size_class(size_t tokens) {
    size_t index = 0;
    while (index + 1 < kClasses && tokens >> (index + 1) > 0) ++index;
    return index;
  }
  static constexpr size_t kClasses = 32;
  std::array<int64_t, kClasses> by_size_{};
};

}  // namespace pocketfleet
