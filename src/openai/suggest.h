// "Did you mean": the known word nearest to one that is not known. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace pocketfleet {

// The nearest of `known` by edit distance when it is near enough to be a slip, else empty. A long `word` is never near.
std::string_view nearest_word(std::string_view word, std::span<const std::string_view> known);

// How an error names a key that a stranger chose: cut behind 64 bytes; the empty one as "".
std::string shown_key(std::string_view key);

// `; did you mean "threshold"?` or empty.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> known);

}  // namespace pocketfleet
