#include "engine/chat_frame.h"

#include <algorithm>
#include <cctype>

namespace pocketfleet {

namespace {

bool is_space(char c) {
  return std::isspace(static_cast<unsigned char>(c)) != 0;
}

// U+0085, U+00A0 and the spaces from U+1680 on, which a template's trim may take away as well.
bool touches_wide_space(std::string_view text) {
  const auto first = static_cast<unsigned char>(text.front());
  const auto third_last = text.size() >= 3 ? static_cast<unsigned char>(text[text.size() - 3]) : 0;
  const auto second_last = text.size() >= 2 ? static_cast<unsigned char>(text[text.size() - 2]) : 0;
  const auto suspicious = [](unsigned char lead) { return lead == 0xC2 || lead == 0xE1 || lead == 0xE2 || lead == 0xE3; };
  return suspicious(first) || suspicious(third_last) || second_last == 0xC2;
}

}  // namespace

ContentGuard::ContentGuard(std::string_view source) {
  size_t at = 0;
  while (at + 1 < source.size()) {
    const bool opens = source[at] == '{' && (source[at + 1] == '{' || source[at + 1] == '%');
    if (!opens) {
      ++at;
      continue;
    }
    const std::string_view close = source[at + 1] == '{' ? "}}" : "%}";
    at += 2;
    while (at < source.size() && !source.substr(at).starts_with(close)) {
      const char quote = source[at++];
      if (quote != '\'' && quote != '"') continue;
      std::string literal;
      for (; at < source.size() && source[at] != quote; ++at) {
        if (source[at] != '\\' || at + 1 >= source.size()) {
          literal += source[at];
          continue;
        }
        const char escaped = source[++at];
        literal += escaped == 'n' ? '\n' : escaped == 't' ? '\t' : escaped == 'r' ? '\r' : escaped;
      }
      ++at;
      // White space matters at the ends only.
      while (!literal.empty() && is_space(literal.back())) literal.pop_back();
      while (!literal.empty() && is_space(literal.front())) literal.erase(0, 1);
      if (!literal.empty()) literals_.push_back(std::move(literal));
    }
  }
  std::sort(literals_.begin(), literals_.end());
  literals_.erase(std::unique(literals_.begin(), literals_.end()), literals_.end());
}

bool ContentGuard::passes(std::string_view content) const {
  if (content.empty() || is_space(content.front()) || is_space(content.back()) || touches_wide_space(content)) return false;
  return std::none_of(literals_.begin(), literals_.end(),
                      [&](const std::string& literal) { return content.find(literal) != std::string_view::npos; });
}

}  // namespace pocketfleet
