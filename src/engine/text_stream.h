// From tokens to text that may be shown: whole characters only, ill-formed bytes replaced, stop strings found and held back.
// Tokens are given out together with the text that they made, never before it. Pure; one object a stream.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"
#include "engine/stop_strings.h"
#include "engine/types.h"

namespace pocketfleet {

class TextStream {
 public:
  explicit TextStream(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // The next token's bytes; `logprob` may be null. Adds to `chunk` what may go out now.
  void push(std::string_view bytes, const TokenLogprob* logprob, GenerateChunk& chunk);
  // The end: what was held back goes out.
  void finish(GenerateChunk& chunk);

  bool stopped() const { return stops_.matched(); }
  const std::string& matched_stop() const { return stops_.match(); }

 private:
  void flush_tokens(GenerateChunk& chunk);

  Utf8Sanitizer utf8_;
  StopStrings stops_;
  int tokens_ = 0;  // not given out yet
  std::vector<TokenLogprob> logprobs_;
};

}  // namespace pocketfleet
