// Guesses what a text goes on with from what stands in it already: where the last three tokens stood before, what followed them
// there. Costs nothing to be wrong but the reading of the guess. Pure; one a text.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>

#include "engine/draft.h"

namespace pocketfleet {

class NgramDraft final : public Draft {
 public:
  explicit NgramDraft(std::span<const Token> prompt);

  void push(Token token, std::span<const float> hidden = {}) override;
  Tokens propose(size_t most) override;
  void judge(size_t proposed, size_t accepted) override { record_.judge(text_.size(), proposed, accepted); }

 private:
  static constexpr size_t kOrder = 3;
  uint64_t key_at(size_t end) const;
  void index(size_t end);

  Tokens text_;
  std::unordered_map<uint64_t, size_t> follows_;  // the last kOrder tokens to where the next one stands
  GuessRecord record_;
};

}  // namespace pocketfleet
