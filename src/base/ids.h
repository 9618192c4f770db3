// Random identifiers from the operating system's generator: 24 letters and digits behind a prefix, about 142 bits. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace pocketfleet {

// make_id("chatcmpl-") gives "chatcmpl-" and 24 characters of [a-zA-Z0-9].
std::string make_id(std::string_view prefix);

}  // namespace pocketfleet
