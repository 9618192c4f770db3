// JSON behind one door: nlohmann's library, with bounds. Include this where JSON is only passed on; include <nlohmann/json.hpp>
// in the .cpp that reads it (it costs seconds a file). parse_json never throws and never recurses deeper than `max_depth`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pocketfleet {

using Json = nlohmann::json;

struct JsonLimits {
  size_t max_depth = 64;
  size_t max_bytes = 8u << 20;
};

// kInvalidArgument with the byte offset when the text is not JSON, is nested too deep, is too long or is not UTF-8.
Result<Json> parse_json(std::string_view text, const JsonLimits& limits = {});

// One line; ill-formed UTF-8 inside strings becomes U+FFFD instead of an exception.
std::string dump_json(const Json& value);

}  // namespace pocketfleet
