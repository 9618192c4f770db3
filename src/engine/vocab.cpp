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
// llama.cpp splits text with std::regex for many vocabularies, which uses stack for each character of a match and overflows it
// on a word of 200,000; others take quadratic time. No real text has such words, so cutting them costs nothing.
constexpr size_t kLongestRun = 8192;

bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

size_t character_bytes(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

}  // namespace

Vocab::Vocab(const llama_vocab* vocab) : vocab_(vocab), size_(llama_vocab_n_tokens(vocab)), by_first_byte_(256) {
  for (Token token = 0; token < size_; ++token) {
    if (llama_vocab_is_eog(vocab, token)) end_tokens_.push_back(token);
    const auto attributes = static_cast<unsigned>(llama_vocab_get_attr(vocab, token));
    if ((attributes & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_USER_DEFINED | LLAMA_TOKEN_ATTR_UNKNOWN)) == 0) continue;
    const char* text = llama_vocab_get_text(vocab, token);
    if (text == nullptr || text[0] == '\0') continue;
    // Runs of white space are ordinary text that some vocabularies list as user-defined; the model knows indented text by them.
    if (std::string_view(text).find_first_not_of(" \t\r\n") != std::string_view::npos) specials_.push_back({text, token});
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

// Where plain text must be cut so that no piece holds a whole special text and none is one endless word. Sorted.
std::vector<size_t> Vocab::cuts(std::string_view text) const {
  std::vector<size_t> cuts;
  for (size_t start = 0;;) {
    const auto [at, index] = find_special(text, start);
    if (at == std::string_view::npos) break;
    // Behind the first character and not inside one, or its bytes would be lost. One character alone cannot be cut.
    start = at + character_bytes(text[at]);
    if (start < at + specials_[index].text.size()) cuts.push_back(start);
  }
  const size_t specials = cuts.size();
  size_t run = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (at > 0 && is_space(text[at]) != is_space(text[at - 1])) run = 0;
    if (++run > kLongestRun && (static_cast<unsigned char>(text[at]) & 0xC0) != 0x80) {
      cuts.push_back(at);
      run = 1;
    }
  }
  std::inplace_merge(cuts.begin(), cuts.begin() + static_cast<std::ptrdiff_t>(specials), cuts.end());
  return cuts;
}

bool Vocab::has_long_run(std::string_view text) {
  size_t run = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    run = at > 0 && is_space(text[at]) == is_space(text[at - 1]) ? run + 1 : 1;
    if (run > kLongestRun) return true;
  }
  return false;
}

// A piece that goes on where another ended. SentencePiece vocabularies put a space before every text, here behind a line's end.
Result<Tokens> Vocab::tokenize_more(std::string_view piece) const {
  if (llama_vocab_type(vocab_) == LLAMA_VOCAB_TYPE_SPM) {
    PF_TRY(const Tokens head, tokenize_raw("\n", false, false));
    PF_TRY(Tokens tokens, tokenize_raw("\n" + std::string(piece), false, false));
    if (tokens.size() >= head.size() && std::equal(head.begin(), head.end(), tokens.begin())) {
      tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(head.size()));
      return tokens;
    }
  }
  return tokenize_raw(piece, false, false);
}

Result<Tokens> Vocab::tokenize_plain(std::string_view text) const {
  Tokens tokens;
  size_t start = 0;
  std::vector<size_t> ends = cuts(text);
  ends.push_back(text.size());
  for (const size_t end : ends) {
    if (end == start) continue;
    const std::string_view piece = text.substr(start, end - start);
    PF_TRY(const Tokens made, start == 0 ? tokenize_raw(piece, false, false) : tokenize_more(piece));
    tokens.insert(tokens.end(), made.begin(), made.end());
    start = end;
  }
  return tokens;
}

Result<Tokens> Vocab::tokenize(std::string_view text, bool add_special, bool parse_special) const {
  if (text.size() > kMostTextBytes) return tokenize_raw(text, add_special, parse_special);
  const bool whole = parse_special ? !has_long_run(text) : cuts(text).empty();
  if (whole) return tokenize_raw(text, add_special, parse_special);
  Tokens tokens;
  if (add_special && llama_vocab_get_add_bos(vocab_)) tokens.push_back(llama_vocab_bos(vocab_));
  for (size_t start = 0; start < text.size();) {
    const auto [at, index] = parse_special ? find_special(text, start) : std::pair{std::string_view::npos, size_t{0}};
    const size_t end = std::min(at, text.size());
    PF_TRY(const Tokens plain, tokenize_plain(text.substr(start, end - start)));
    tokens.insert(tokens.end(), plain.begin(), plain.end());
    if (at == std::string_view::npos) break;
    tokens.push_back(specials_[index].token);
    start = at + specials_[index].text.size();
  }
  if (add_special && llama_vocab_get_add_eos(vocab_)) tokens.push_back(llama_vocab_eos(vocab_));
  return tokens;
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
