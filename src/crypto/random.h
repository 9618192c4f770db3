// Random bytes from OpenSSL's generator, which is seeded by the operating system. Any thread. kInternal when there is no
// randomness.
#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"

namespace pocketfleet {

Result<std::string> random_bytes(size_t count);

// A new API key: "pf_" and 43 characters of [A-Za-z0-9_-], 256 bits.
Result<std::string> make_api_key();

}  // namespace pocketfleet
