// UTF-8: validation, and an incremental sanitizer that never splits a character and replaces ill-formed bytes by U+FFFD as the
// Unicode Standard does (maximal subparts, chapter 3, tables 3-8 to 3-11). Pure; one Utf8Sanitizer a stream; no errors.
#pragma once

#include <string>
#include <string_view>

namespace pocketfleet {

bool is_valid_utf8(std::string_view text);

// How many bytes at the end of `text` are the beginning of a character that is not complete yet: 0 to 3.
size_t incomplete_utf8_tail(std::string_view text);

class Utf8Sanitizer {
 public:
  // Takes the next bytes and returns what is complete; keeps up to three bytes of an unfinished character.
  std::string push(std::string_view bytes);
  // The end of the stream: an unfinished character becomes one U+FFFD.
  std::string finish();
  bool pending() const { return !pending_.empty(); }

 private:
  std::string pending_;
};

// The whole text in one call.
std::string sanitize_utf8(std::string_view bytes);

}  // namespace pocketfleet
