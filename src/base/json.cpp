#include "base/json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace pocketfleet {

namespace {

// Depth is checked on the text, before anything is built: 60,000 brackets must cost nothing.
bool too_deep(std::string_view text, size_t max_depth) {
  size_t depth = 0;
  bool in_string = false;
  for (size_t index = 0; index < text.size(); ++index) {
    const char c = text[index];
    if (in_string) {
      if (c == '\\') {
        ++index;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > max_depth) return true;
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return false;
}

}  // namespace

Result<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return fail(ErrorCode::kPayloadTooLarge,
                fmt::format("the JSON text has {} bytes; at most {} are accepted", text.size(), limits.max_bytes));
  }
  if (too_deep(text, limits.max_depth)) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("the JSON text is nested deeper than {} levels", limits.max_depth));
  }
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const Json::parse_error& e) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("the text is not valid JSON: parse error at byte {}", e.byte));
  } catch (const Json::exception&) {
    return fail(ErrorCode::kInvalidArgument, "the text is not valid JSON: a number is out of range");
  }
}

std::string dump_json(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace pocketfleet
