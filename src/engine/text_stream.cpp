#include "engine/text_stream.h"

namespace pocketfleet {

void TextStream::flush_tokens(GenerateChunk& chunk) {
  chunk.tokens += tokens_;
  tokens_ = 0;
  for (TokenLogprob& logprob : logprobs_) chunk.logprobs.push_back(std::move(logprob));
  logprobs_.clear();
}

void TextStream::push(std::string_view bytes, const TokenLogprob* logprob, GenerateChunk& chunk) {
  ++tokens_;
  if (logprob != nullptr) logprobs_.push_back(*logprob);
  chunk.text += stops_.push(utf8_.push(bytes));
  // Tokens wait while a part of their text waits, so that a chunk's tokens make its text.
  if (!utf8_.pending() && !stops_.holding() && !stops_.matched()) flush_tokens(chunk);
}

void TextStream::finish(GenerateChunk& chunk) {
  chunk.text += stops_.push(utf8_.finish());
  chunk.text += stops_.finish();
  if (!stops_.matched()) flush_tokens(chunk);
}

}  // namespace pocketfleet
