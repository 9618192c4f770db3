#include "openai/windows.h"

#include <algorithm>

namespace pocketfleet {

namespace {

bool continues(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

// The byte after the character that begins at `at`.
size_t next_character(std::string_view text, size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
  size_t end = at + 1;
  while (end < text.size() && end < at + length && continues(text[end])) ++end;
  return end;
}

}  // namespace

size_t count_characters(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); at = next_character(text, at)) ++count;
  return count;
}

size_t count_windows(std::string_view text, size_t characters, size_t stride) {
  const size_t total = count_characters(text);
  if (characters == 0 || total <= characters) return 1;
  stride = std::clamp<size_t>(stride, 1, characters);
  return 1 + (total - characters + stride - 1) / stride;
}

std::vector<TextWindow> cut_windows(std::string_view text, size_t characters, size_t stride) {
  const size_t total = count_characters(text);
  if (characters == 0 || total <= characters) return {{text, 0, total}};
  stride = std::clamp<size_t>(stride, 1, characters);

  std::vector<TextWindow> windows;
  size_t begin = 0;  // byte of the window's first character
  size_t end = 0;    // byte after its last one
  size_t end_character = 0;
  for (size_t first = 0;; first += stride) {
    while (end_character < std::min(first + characters, total)) {
      end = next_character(text, end);
      ++end_character;
    }
    windows.push_back({text.substr(begin, end - begin), first, end_character - first});
    if (end_character == total) return windows;
    for (size_t step = 0; step < stride; ++step) begin = next_character(text, begin);
  }
}

}  // namespace pocketfleet
