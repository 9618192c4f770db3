// Chooses the next token of one request: logit bias, penalties, top-k, top-p, min-p, temperature, and the grammar. The grammar is
// asked about the chosen token first and put over the whole vocabulary only when it refuses. One thread. Errors: the grammar may
// get stuck.
#pragma once

#include <memory>
#include <vector>

#include "engine/output_format.h"
#include "engine/types.h"
#include "engine/vocab.h"

struct llama_token_data;

namespace pocketfleet {

class Sampler {
 public:
  // `prompt`: its last tokens count for penalties. `format` may be null. `ignore_eos`: no token that ends an answer is chosen.
  Sampler(const Vocab& vocab, const SamplingParams& params, std::shared_ptr<const LlamaFormat> format, const Tokens& prompt,
          bool ignore_eos = false);
  ~Sampler();

  // `logits`: one row, as long as the vocabulary; not changed. The token is taken as written.
  Result<Token> sample(const float* logits);

  // From the log-softmax of the raw logits; `top` alternatives, the likeliest first.
  TokenLogprob logprob(const float* logits, Token chosen, int top) const;

 private:
  Token choose(const float* logits, bool with_grammar);
  const float* with_bias(const float* logits);
  bool grammar_allows(Token token);
  void accept(Token token);

  const Vocab& vocab_;
  bool plain_greedy_;
  float nucleus_ = 1.0f;  // top-p, where no top-k goes before it; 1: off
  std::vector<std::pair<Token, float>> bias_;
  SamplerPtr penalties_;  // may be null
  SamplerPtr chain_;      // ends with a selecting sampler
  SamplerPtr grammar_;
  std::shared_ptr<const LlamaFormat> format_;
  std::string before_grammar_;  // text written so far, while the grammar waits for the end of the reasoning
  bool grammar_on_ = false;
  std::vector<float> biased_;
  std::vector<llama_token_data> candidates_;
};

}  // namespace pocketfleet
