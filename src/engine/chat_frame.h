// What a chat template puts around the last user message. Most requests of a server differ in that message alone, so the template
// need not be run again for each: a frame holds what stands before and behind, and a guard says which texts pass through the
// template as they are. Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/types.h"

namespace pocketfleet {

// A template can only treat a text in a special way by comparing it with a literal, by trimming it, or by changing every text.
// The first two are looked for here; the last one shows when a frame is made.
class ContentGuard {
 public:
  explicit ContentGuard(std::string_view template_source);
  // False for what may not come out as it is: empty texts, white space at an end, and texts that hold a literal of the template.
  bool passes(std::string_view content) const;

 private:
  std::vector<std::string> literals_;
};

struct ChatFrame {
  Tokens before;     // up to the last control token before the message
  std::string head;  // text between that and the message, which may share tokens with it
  std::string tail;  // text behind the message, up to the next control token
  Tokens after;
  RenderedChat shape;  // all but the tokens and checkpoints
  size_t fixed_tokens = 0;
  size_t generation_tokens = 0;  // the prompt's end, where the answer begins
};

}  // namespace pocketfleet
