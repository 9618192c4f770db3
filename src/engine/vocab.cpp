#include "engine/vocab.h"

#include <fmt/format.h>
#include <llama.h>

#include <algorithm>
#include <climits>

namespace pocketfleet {

namespace {

constexpr size_t kMostTextBytes = 64u << 20;
constexpr size_t kCountBytes = 4096;
// What a cut between two pieces of text may add to their tokens.
constexpr size_t kTokensOfCut = 16;

}  // namespace

Vocab::Vocab(const llama_vocab* vocab) : vocab_(vocab), size_(llama_vocab_n_tokens(vocab)), by_first_byte_(256) {
  for (Token token = 0; token < size_; ++token) {
    if (llama_vocab_is_eog(vocab, token)) end_tokens_.push_back(token);
    const auto attributes = static_cast<unsigned>(llama_vocab_get_attr(vocab, token));
    if ((attributes & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_USER_DEFINED | LLAMA_TOKEN_ATTR_UNKNOWN)) == 0) continue;
    const char* text = llama_vocab_get_text(vocab, token);
    if (text != nullptr && text[0] != '\0') specials_.push_back({text, token});
  }
  std::stable_sort(specials_.begin(), specials_.end(),
                   [](const Special& a, const Special& b) { return a.text.size() > b.text.size(); });
  for (size_t index = 0; index < specials_.size(); ++index) {
    by_first_byte_[static_cast<unsigned char>(specials_[index].text[0])].push_back(index);
  }
}

std::pair<size_t, size_t> Vocab::find_special(std::string_view text, size_t from) const {
  for (size_t at = from; at < text.size(); ++at) {
    for (const size_t index : by_first_byte_[static_cast<unsigned char>(text[at])]) {
      if (text.substr(at).starts_with(specials_[index].text)) return {at, index};
    }
  }
  return {std::string_view::npos, 0};
}

Token Vocab::special_token(std::string_view text) const {
  for (const Special& special : specials_) {
    if (special.text == text) return special.token;
  }
  return -1;
}

Result<Tokens> Vocab::tokenize_raw(std::string_view text, bool add_special, bool parse_special) const {
  if (text.size() > kMostTextBytes) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the text has {} bytes; at most {} are accepted", text.size(), kMostTextBytes));
  }
  // No token is shorter than a byte, but a leading space and BOS/EOS may be added.
  Tokens tokens(text.size() + 8);
  try {
    int32_t count = llama_tokenize(vocab_, text.data(), static_cast<int32_t>(text.size()), tokens.data(),
                                   static_cast<int32_t>(tokens.size()), add_special, parse_special);
    if (count < 0 && count != INT_MIN) {
      tokens.resize(static_cast<size_t>(-count));
      count = llama_tokenize(vocab_, text.data(), static_cast<int32_t>(text.size()), tokens.data(),
                             static_cast<int32_t>(tokens.size()), add_special, parse_special);
    }
    if (count < 0) return fail(ErrorCode::kInternal, "the text could not be turned into tokens");
    tokens.resize(static_cast<size_t>(count));
    return tokens;
  } catch (const std::exception& e) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("the text could not be turned into tokens: {}", e.what()));
  }
}

Result<Tokens> Vocab::tokenize(std::string_view text, bool add_special, bool parse_special) const {
  if (parse_special) return tokenize_raw(text, add_special, true);
  // Special texts are broken inside, so that no piece holds a whole one; llama.cpp would find user-defined ones in any case.
  Tokens tokens;
  size_t start = 0;
  for (;;) {
    const auto [at, index] = find_special(text, start);
    const bool found = at != std::string_view::npos;
    // A special text of one byte cannot be broken; it is then an ordinary character of the model's.
    const size_t end = found ? at + std::max<size_t>(1, specials_[index].text.size() / 2) : text.size();
    PF_TRY(const Tokens piece, tokenize_raw(text.substr(start, end - start), add_special && start == 0, false));
    tokens.insert(tokens.end(), piece.begin(), piece.end());
    if (!found) return tokens;
    start = end;
  }
}

size_t Vocab::count_to(std::string_view text, size_t limit) const {
  size_t count = 0;
  while (!text.empty() && count <= limit) {
    size_t end = std::min(text.size(), kCountBytes);
    // Not inside a character, as long as the bytes are characters.
    while (end < text.size() && end > kCountBytes - 4 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    const auto tokens = tokenize_raw(text.substr(0, end), false, false);
    if (tokens && tokens->size() > kTokensOfCut) count += tokens->size() - kTokensOfCut;
    text.remove_prefix(end);
  }
  return count;
}

std::string Vocab::token_bytes(Token token, bool show_special) const {
  char buffer[256];
  int32_t length = llama_token_to_piece(vocab_, token, buffer, sizeof buffer, 0, show_special);
  if (length >= 0) return std::string(buffer, static_cast<size_t>(length));
  std::string bytes(static_cast<size_t>(-length), '\0');
  length = llama_token_to_piece(vocab_, token, bytes.data(), static_cast<int32_t>(bytes.size()), 0, show_special);
  bytes.resize(length > 0 ? static_cast<size_t>(length) : 0);
  return bytes;
}

Result<std::string> Vocab::detokenize(std::span<const Token> tokens, bool show_special) const {
  std::string text;
  for (const Token token : tokens) {
    if (token < 0 || token >= size_) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("token {} is not in the vocabulary of {}", token, size_), "tokens");
    }
    text += token_bytes(token, show_special);
  }
  return text;
}

bool Vocab::is_end_of_generation(Token token) const {
  return llama_vocab_is_eog(vocab_, token);
}

}  // namespace pocketfleet
