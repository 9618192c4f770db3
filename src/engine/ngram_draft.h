// Guesses what a text goes on with from what stands in it already: where the last three tokens stood before, what followed them
// there. Costs nothing to be wrong but the reading of the guess, so it backs off while its guesses fail. Pure; one a text.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>

#include "engine/types.h"

namespace pocketfleet {

class NgramDraft {
 public:
  explicit NgramDraft(std::span<const Token> prompt);

  // A token that was written.
  void push(Token token);
  // At most `most` tokens that may follow; empty when nothing is known or guesses have been failing.
  Tokens propose(size_t most);
  // How many of the tokens of the last proposal were right.
  void judge(size_t proposed, size_t accepted);

 private:
  static constexpr size_t kOrder = 3;
  uint64_t key_at(size_t end) const;
  void index(size_t end);

  Tokens text_;
  std::unordered_map<uint64_t, size_t> follows_;  // the last kOrder tokens to where the next one stands
  double share_right_ = 1;                        // of recent proposals
  size_t silent_until_ = 0;                       // length of the text
};

}  // namespace pocketfleet
