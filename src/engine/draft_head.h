// The model's own draft head (Qwen3.5's MTP layer, multi-token prediction): one more layer that guesses the token after the next
// from what the last layer came to, in a llama.cpp context of its own beside the one that writes; the weights are shared. It
// reads what is written and not the prompt, which the last layer's numbers speak for, so that reading costs nothing more and
// checkpoints need nothing of it. Not thread-safe: the engine's thread uses it and its guessers, which must not outlive it.
#pragma once

#include <llama.h>

#include <memory>
#include <vector>

#include "engine/draft.h"

namespace pocketfleet {

struct DraftHeadOptions {
  int streams = 4;  // that guess at a time; further ones do without
  int threads = 1;
  bool flash_attention = true;
  bool kernels = true;  // as the model was loaded
  ggml_type kv_type = GGML_TYPE_F16;
};

class DraftHead {
 public:
  // kInvalidArgument when the model has no such head, kOutOfMemory when no context can be had.
  static Result<std::unique_ptr<DraftHead>> create(llama_model* model, const DraftHeadOptions& options);
  ~DraftHead();
  DraftHead(const DraftHead&) = delete;
  DraftHead& operator=(const DraftHead&) = delete;

  std::unique_ptr<Draft> open_stream();

 private:
  class Stream;
  struct ContextDeleter {
    void operator()(llama_context* context) const { llama_free(context); }
  };

  DraftHead() = default;
  // One token and what the model came to where it was chosen.
  void add(Token token, std::span<const float> hidden, int position, int sequence, bool ask);
  bool decode();

  std::unique_ptr<llama_context, ContextDeleter> context_;
  llama_batch batch_{};
  std::vector<Token> tokens_;  // llama_batch_init() makes room for tokens or for vectors, and the head wants both
  size_t width_ = 0;
  size_t vocabulary_ = 0;
  std::vector<int> free_sequences_;
};

}  // namespace pocketfleet
