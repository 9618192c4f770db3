// Base64 (RFC 4648): section 4, with padding, and section 5, for URLs, without. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace pocketfleet {

std::string to_base64(std::string_view bytes);
// Nothing for what to_base64() does not make: other letters, white space, missing padding, bits left over.
std::optional<std::string> from_base64(std::string_view text);

std::string to_base64url(std::string_view bytes);
// Nothing for what to_base64url() does not make.
std::optional<std::string> from_base64url(std::string_view text);

}  // namespace pocketfleet
