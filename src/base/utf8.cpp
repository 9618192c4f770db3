#include "base/utf8.h"

#include <cstdint>

namespace pocketfleet {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Step {
  size_t length;  // bytes of the character, or of the maximal subpart of an ill-formed one
  bool valid;
  bool truncated;  // the text ends before the character does
};

// Looks at the character that starts at text[0]; text is not empty. Ranges of table 3-7.
Step next_char(std::string_view text) {
  auto byte = [&](size_t index) { return static_cast<uint8_t>(text[index]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {1, true, false};
  size_t need = 0;
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    need = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    need = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    need = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {1, false, false};
  }
  for (size_t index = 1; index < need; ++index) {
    if (index >= text.size()) return {index, false, true};
    if (byte(index) < low || byte(index) > high) return {index, false, false};
    low = 0x80;
    high = 0xBF;
  }
  return {need, true, false};
}

}  // namespace

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const Step step = next_char(text);
    if (!step.valid) return false;
    text.remove_prefix(step.length);
  }
  return true;
}

size_t incomplete_utf8_tail(std::string_view text) {
  const size_t window = text.size() < 3 ? text.size() : 3;
  for (size_t back = window; back > 0; --back) {
    const std::string_view tail = text.substr(text.size() - back);
    if ((static_cast<uint8_t>(tail[0]) & 0xC0) == 0x80) continue;
    const Step step = next_char(tail);
    if (step.truncated && step.length == back) return back;
  }
  return 0;
}

std::string Utf8Sanitizer::push(std::string_view bytes) {
  std::string joined;
  std::string_view text = bytes;
  if (!pending_.empty()) {
    joined = pending_;
    joined.append(bytes);
    text = joined;
    pending_.clear();
  }
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Step step = next_char(text);
    if (step.truncated) {
      pending_.assign(text);
      break;
    }
    out.append(step.valid ? text.substr(0, step.length) : kReplacement);
    text.remove_prefix(step.length);
  }
  return out;
}

std::string Utf8Sanitizer::finish() {
  if (pending_.empty()) return {};
  pending_.clear();
  return std::string(kReplacement);
}

std::string sanitize_utf8(std::string_view bytes) {
  Utf8Sanitizer sanitizer;
  std::string out = sanitizer.push(bytes);
  out += sanitizer.finish();
  return out;
}

}  // namespace pocketfleet
