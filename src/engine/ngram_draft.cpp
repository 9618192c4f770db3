#include "engine/ngram_draft.h"

#include <algorithm>

namespace pocketfleet {

NgramDraft::NgramDraft(std::span<const Token> prompt) : text_(prompt.begin(), prompt.end()) {
  for (size_t end = kOrder; end < text_.size(); ++end) index(end);
}

// Exact: no vocabulary has 2^21 tokens.
uint64_t NgramDraft::key_at(size_t end) const {
  uint64_t key = 0;
  for (size_t place = end - kOrder; place < end; ++place)
    key = key << 21 | (static_cast<uint64_t>(static_cast<uint32_t>(text_[place])) & 0x1FFFFF);
  return key;
}

// What follows text_[0..end) is known from now on.
void NgramDraft::index(size_t end) {
  follows_[key_at(end)] = end;
}

void NgramDraft::push(Token token, std::span<const float>) {
  text_.push_back(token);
  if (text_.size() > kOrder) index(text_.size() - 1);
}

Tokens NgramDraft::propose(size_t most) {
  if (text_.size() < kOrder || record_.silent(text_.size())) return {};
  const auto found = follows_.find(key_at(text_.size()));
  if (found == follows_.end()) return {};
  const size_t count = std::min(most, text_.size() - found->second);
  const auto first = text_.begin() + static_cast<std::ptrdiff_t>(found->second);
  return {first, first + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace pocketfleet
