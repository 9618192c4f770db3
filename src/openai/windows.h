// Cuts a long text into overlapping windows of characters (Unicode code points), never inside a character. Pure; the pieces view
// the text. Bytes that are not UTF-8 count as a character each, so that nothing is lost and nothing fails.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace pocketfleet {

struct TextWindow {
  std::string_view text;
  size_t first_character = 0;
  size_t characters = 0;
};

// Windows of `characters`, one beginning every `stride`; the last one ends where the text ends. A text that fits one window, or
// characters == 0, gives the whole text; an empty text gives one empty window. stride is 1 to `characters`.
std::vector<TextWindow> cut_windows(std::string_view text, size_t characters, size_t stride);

// How many windows that gives, without making them.
size_t count_windows(std::string_view text, size_t characters, size_t stride);

size_t count_characters(std::string_view text);

}  // namespace pocketfleet
