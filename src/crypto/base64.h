// Base64 (RFC 4648, section 4, with padding). Pure; does not fail.
#pragma once

#include <string>
#include <string_view>

namespace pocketfleet {

std::string to_base64(std::string_view bytes);

}  // namespace pocketfleet
