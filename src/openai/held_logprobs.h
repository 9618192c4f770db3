// Keeps the logprobs of tokens until the text that came from them turns out to be content. Tokens of reasoning, of tool calls and
// of the marks between them are dropped, so that the tokens given out spell the content. Pure; one answer; never fails.
#pragma once

#include <string_view>
#include <vector>

#include "engine/types.h"

namespace pocketfleet {

class HeldLogprobs {
 public:
  void add(std::vector<TokenLogprob> logprobs);
  // The tokens of this piece of content; what stands before it is dropped, what stands behind it waits.
  std::vector<TokenLogprob> take(std::string_view content);
  // The tokens of this piece of reasoning, and what stands before them, are not asked for; what stands behind them waits.
  void skip(std::string_view reasoning) { take(reasoning); }
  std::vector<TokenLogprob> take_all();
  void drop() { held_.clear(); }

 private:
  std::vector<TokenLogprob> held_;
};

}  // namespace pocketfleet
