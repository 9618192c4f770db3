// A regular expression as a GBNF grammar: one pass, recursion bounded by the nesting limit.

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "engine/grammar.h"

namespace pocketfleet {

namespace {

class Converter {
 public:
  Converter(std::string_view text, const GrammarLimits& limits) : text_(text), limits_(limits) {}

  Result<std::string> run() {
    if (text_.size() > limits_.text_bytes) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("the regular expression has {} bytes; at most {} are accepted", text_.size(), limits_.text_bytes),
                  "regex");
    }
    if (peek() == '^') ++at_;
    PF_TRY(std::string body, alternatives(0));
    if (at_ < text_.size()) return bad("closes a group that is not open");
    return "root ::= " + body + "\n";
  }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  tl::unexpected<Error> bad(std::string_view what) const {
    return fail(ErrorCode::kInvalidArgument, fmt::format("the regular expression {} (at byte {})", what, at_), "regex");
  }

  Result<std::string> alternatives(size_t depth) {
    if (depth > limits_.depth) return bad(fmt::format("is nested deeper than {} levels", limits_.depth));
    std::string out;
    for (;;) {
      PF_TRY(const std::string part, sequence(depth));
      out += part.empty() ? "\"\"" : part;
      if (peek() != '|' || at_ >= text_.size()) return out;
      ++at_;
      out += " | ";
    }
  }

  Result<std::string> sequence(size_t depth) {
    std::string out;
    while (at_ < text_.size() && peek() != '|' && peek() != ')') {
      if (peek() == '$') {
        if (at_ + 1 != text_.size()) return bad("has an anchor inside; the whole text is matched in any case");
        ++at_;
        break;
      }
      PF_TRY(std::string piece, atom(depth));
      PF_TRY(const std::string repeat, quantifier());
      if (!out.empty()) out += ' ';
      out += piece + repeat;
    }
    return out;
  }

  Result<std::string> quantifier() {
    std::string out;
    const char c = peek();
    if (at_ >= text_.size()) return out;
    if (c == '*' || c == '+' || c == '?') {
      out = c;
      ++at_;
    } else if (c == '{') {
      const size_t end = text_.find('}', at_);
      if (end == std::string_view::npos) return bad("leaves a repetition open");
      const std::string_view inside = text_.substr(at_ + 1, end - at_ - 1);
      size_t number = 0;
      bool digits = false;
      size_t commas = 0;
      for (const char d : inside) {
        if (d == ',') {
          ++commas;
          number = 0;
        } else if (d >= '0' && d <= '9') {
          digits = true;
          number = number * 10 + static_cast<size_t>(d - '0');
          if (number > limits_.repeat) return bad(fmt::format("repeats more than {} times", limits_.repeat));
        } else {
          return bad("has a repetition that is not {m}, {m,} or {m,n}");
        }
      }
      if (!digits || commas > 1 || inside.front() == ',') return bad("has a repetition that is not {m}, {m,} or {m,n}");
      out = fmt::format("{{{}}}", inside);
      at_ = end + 1;
    } else {
      return out;
    }
    // A lazy quantifier accepts the same texts; a possessive one does not.
    if (at_ < text_.size() && peek() == '?') ++at_;
    if (at_ < text_.size() && (peek() == '+' || peek() == '*' || peek() == '{')) return bad("repeats a repetition");
    return out;
  }

  Result<std::string> atom(size_t depth) {
    const char c = peek();
    if (c == '(') return group(depth);
    if (c == '[') return char_class();
    if (c == '*' || c == '+' || c == '?' || c == '{') return bad("repeats nothing");
    if (c == '^') return bad("has an anchor inside; the whole text is matched in any case");
    if (c == '.') {
      ++at_;
      return std::string("[^\\n]");
    }
    if (c == '\\') return escape(false);
    std::string literal = "\"";
    literal += quoted(c);
    ++at_;
    // A character of several bytes stays together, so that a repetition covers all of it.
    while (at_ < text_.size() && (static_cast<unsigned char>(text_[at_]) & 0xC0) == 0x80) literal += text_[at_++];
    return literal + "\"";
  }

  static std::string quoted(char c) {
    switch (c) {
      case '"':
        return "\\\"";
      case '\\':
        return "\\\\";
      case '\n':
        return "\\n";
      case '\r':
        return "\\r";
      case '\t':
        return "\\t";
      default:
        break;
    }
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) return fmt::format("\\x{:02X}", byte);
    return std::string(1, c);
  }

  Result<std::string> group(size_t depth) {
    ++at_;
    if (peek() == '?') {
      if (at_ + 1 < text_.size() && text_[at_ + 1] == ':') {
        at_ += 2;
      } else {
        return bad("uses lookaround, a flag or a named group, which cannot be enforced");
      }
    }
    PF_TRY(const std::string body, alternatives(depth + 1));
    if (at_ >= text_.size() || peek() != ')') return bad("leaves a group open");
    ++at_;
    return "(" + body + ")";
  }

  // An escape outside a class becomes a class or a literal; inside, what stands between the brackets.
  Result<std::string> escape(bool in_class) {
    if (at_ + 1 >= text_.size()) return bad("ends in a backslash");
    const char c = text_[at_ + 1];
    at_ += 2;
    const auto wrap = [&](std::string_view inside) { return in_class ? std::string(inside) : fmt::format("[{}]", inside); };
    switch (c) {
      case 'd':
        return wrap("0-9");
      case 'w':
        return wrap("a-zA-Z0-9_");
      case 's':
        return wrap(" \\t\\n\\r");
      case 'D':
        if (!in_class) return std::string("[^0-9]");
        break;
      case 'W':
        if (!in_class) return std::string("[^a-zA-Z0-9_]");
        break;
      case 'S':
        if (!in_class) return std::string("[^ \\t\\n\\r]");
        break;
      case 'n':
        return in_class ? std::string("\\n") : std::string("\"\\n\"");
      case 'r':
        return in_class ? std::string("\\r") : std::string("\"\\r\"");
      case 't':
        return in_class ? std::string("\\t") : std::string("\"\\t\"");
      default:
        break;
    }
    if (isalnum(static_cast<unsigned char>(c)) != 0) {
      at_ -= 2;
      return bad(fmt::format("uses \\{}, which cannot be enforced", c));
    }
    if (in_class)
      return c == ']' || c == '\\' || c == '[' || c == '-' || c == '^' ? fmt::format("\\x{:02X}", c) : std::string(1, c);
    return "\"" + quoted(c) + "\"";
  }

  // One character of a class, or a set such as \d; appends it to `out`. Gives the code point, or nothing for a set.
  Result<std::optional<uint32_t>> class_item(std::string& out) {
    const char c = peek();
    if (c == '\\') {
      const char escaped = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
      PF_TRY(const std::string inside, escape(true));
      out += inside;
      if (escaped == 'n') return std::optional<uint32_t>('\n');
      if (escaped == 'r') return std::optional<uint32_t>('\r');
      if (escaped == 't') return std::optional<uint32_t>('\t');
      if (isalnum(static_cast<unsigned char>(escaped)) != 0) return std::optional<uint32_t>();
      return std::optional<uint32_t>(static_cast<unsigned char>(escaped));
    }
    if (c == '[' || c == ']') {
      if (c == '[' && at_ + 1 < text_.size() && text_[at_ + 1] == ':') return bad("uses a POSIX class, which cannot be enforced");
      out += fmt::format("\\x{:02X}", c);
      ++at_;
      return std::optional<uint32_t>(c);
    }
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 ? quoted(c) : std::string(1, c);
    ++at_;
    uint32_t code = byte < 0x80 ? byte : byte < 0xE0 ? byte & 0x1Fu : byte < 0xF0 ? byte & 0x0Fu : byte & 0x07u;
    for (; byte >= 0xC0 && at_ < text_.size() && (static_cast<unsigned char>(text_[at_]) & 0xC0) == 0x80; ++at_) {
      code = code << 6 | (static_cast<unsigned char>(text_[at_]) & 0x3Fu);
      out += text_[at_];
    }
    return std::optional<uint32_t>(code);
  }

  Result<std::string> char_class() {
    std::string out = "[";
    ++at_;
    if (peek() == '^') {
      out += '^';
      ++at_;
    }
    bool any = false;
    while (at_ < text_.size() && (peek() != ']' || !any)) {
      any = true;
      PF_TRY(const std::optional<uint32_t> first, class_item(out));
      // A hyphen at the end stands for itself.
      if (peek() != '-' || at_ + 1 >= text_.size() || text_[at_ + 1] == ']') continue;
      ++at_;
      std::string after;
      PF_TRY(const std::optional<uint32_t> last, class_item(after));
      // Beside a set such as \w a hyphen stands for itself, as in JavaScript.
      const bool range = first && last;
      if (range && *last < *first) return bad("has a range that runs backwards, which matches nothing");
      out += (range ? "-" : "\\x2D") + after;
    }
    if (at_ >= text_.size()) return bad("leaves a class open");
    ++at_;
    return out + "]";
  }

  std::string_view text_;
  const GrammarLimits& limits_;
  size_t at_ = 0;
};

}  // namespace

Result<std::string> regex_to_gbnf(std::string_view regex, const GrammarLimits& limits) {
  PF_TRY(std::string grammar, Converter(regex, limits).run());
  auto checked = check_gbnf(grammar, {grammar.size(), limits.depth + 1, limits.repeat, limits.expansion});
  if (!checked) return fail(ErrorCode::kInvalidArgument, checked.error().message, "regex");
  return grammar;
}

}  // namespace pocketfleet
