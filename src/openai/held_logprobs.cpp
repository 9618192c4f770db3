#include "openai/held_logprobs.h"

#include <iterator>
#include <string>
#include <utility>

namespace pocketfleet {

void HeldLogprobs::add(std::vector<TokenLogprob> logprobs) {
  std::move(logprobs.begin(), logprobs.end(), std::back_inserter(held_));
}

std::vector<TokenLogprob> HeldLogprobs::take(std::string_view content) {
  std::string bytes;
  for (const TokenLogprob& logprob : held_) bytes += logprob.chosen.bytes;
  const size_t begin = bytes.find(content);
  // Bytes that were no UTF-8 became U+FFFD in the text.
  if (begin == std::string::npos) return take_all();
  const size_t end = begin + content.size();
  std::vector<TokenLogprob> taken;
  std::vector<TokenLogprob> left;
  size_t at = 0;
  for (TokenLogprob& logprob : held_) {
    const size_t next = at + logprob.chosen.bytes.size();
    if (at >= end) {
      left.push_back(std::move(logprob));
    } else if (next > begin) {
      taken.push_back(std::move(logprob));
    }
    at = next;
  }
  held_ = std::move(left);
  return taken;
}

std::vector<TokenLogprob> HeldLogprobs::take_all() {
  return std::exchange(held_, {});
}

}  // namespace pocketfleet
