// Writes the answer of one request: sampler, text, stop strings, when to end. One thread at a time. Errors end the request alone.
#pragma once

#include <memory>
#include <string>

#include "engine/sampler.h"
#include "engine/text_stream.h"
#include "engine/types.h"

namespace pocketfleet {

class Writer {
 public:
  // kInvalidArgument when the format is not one of this engine's.
  static Result<std::unique_ptr<Writer>> create(const Vocab& vocab, const GenerateRequest& request, const Tokens& prompt);

  struct Step {
    GenerateChunk chunk;
    bool finished = false;
    FinishReason reason = FinishReason::kStop;
  };
  // Takes the logits after the last token and writes one more. `context_full`: there is no room for another one behind it.
  Result<Step> write(const float* logits, bool context_full);

  Token last_token() const { return last_; }
  int written() const { return written_; }
  const std::string& matched_stop() const { return text_.matched_stop(); }

 private:
  Writer(const Vocab& vocab, const GenerateRequest& request, std::shared_ptr<const LlamaFormat> format, const Tokens& prompt);

  const Vocab& vocab_;
  std::shared_ptr<const LlamaFormat> format_;
  Sampler sampler_;
  TextStream text_;
  int max_tokens_;
  int top_logprobs_;
  Token last_ = -1;
  int written_ = 0;
};

}  // namespace pocketfleet
