// The model's vocabulary: text to tokens and back, exactly. Const and safe from any thread; does not own the llama_vocab.
// With parse_special off no special token of any kind ever comes out of text, also not the ones llama.cpp calls user-defined.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/types.h"

struct llama_vocab;

namespace pocketfleet {

class Vocab {
 public:
  explicit Vocab(const llama_vocab* vocab);

  Result<Tokens> tokenize(std::string_view text, bool add_special, bool parse_special) const;
  // Counts from the beginning until it is certain that `text` has more than `limit` tokens: a number above `limit`, or one up to
  // it when the text may fit. Costs what `limit` tokens cost, however long the text is.
  size_t count_to(std::string_view text, size_t limit) const;
  // kInvalidArgument for an id outside the vocabulary. `show_special`: control tokens as their text, otherwise they are empty.
  Result<std::string> detokenize(std::span<const Token> tokens, bool show_special) const;
  // The bytes that a token stands for when it is written; empty for control tokens. `token` must be inside the vocabulary.
  std::string token_bytes(Token token, bool show_special = false) const;

  bool is_end_of_generation(Token token) const;
  // Every token that ends generation.
  const Tokens& end_tokens() const { return end_tokens_; }
  // The token for exactly this special text, or -1.
  Token special_token(std::string_view text) const;
  int size() const { return size_; }
  const llama_vocab* raw() const { return vocab_; }

  struct Special {
    std::string text;
    Token token;
  };
  // Longest first, so that the first match is the one that llama.cpp would take.
  const std::vector<Special>& specials() const { return specials_; }
  // The first special text in `text` at or after `from`: position and index into specials(); npos when there is none.
  std::pair<size_t, size_t> find_special(std::string_view text, size_t from) const;

 private:
  std::vector<size_t> cuts(std::string_view text) const;
  static bool has_long_run(std::string_view text);
  Result<Tokens> tokenize_more(std::string_view piece) const;
  Result<Tokens> tokenize_plain(std::string_view text) const;
  Result<Tokens> tokenize_raw(std::string_view text, bool add_special, bool parse_special) const;

  const llama_vocab* vocab_;
  int size_;
  Tokens end_tokens_;
  std::vector<Special> specials_;
  std::vector<std::vector<size_t>> by_first_byte_;
};

}  // namespace pocketfleet
