// URLs and the small text rules of HTTP: percent-decoding, query strings, and the three kinds of address that a client may call
// (http://host:port/path, https://..., unix:/socket/path:/path). Pure functions; wrong input is a value, never an exception.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace pocketfleet::net {

// ASCII only, as HTTP compares names.
bool equals_ignoring_case(std::string_view a, std::string_view b);

// Empty where a '%' is not followed by two hexadecimal digits, or where the result would hold a NUL byte.
std::optional<std::string> percent_decode(std::string_view text, bool plus_is_space = false);

// The pairs of a query string in order, decoded; a pair that cannot be decoded is left as it was sent.
std::vector<std::pair<std::string, std::string>> parse_query(std::string_view query);

struct Url {
  enum class Scheme { kHttp, kHttps, kUnix };
  Scheme scheme = Scheme::kHttp;
  std::string host;  // name or address without brackets; the socket's path for kUnix
  uint16_t port = 0;
  std::string target = "/";  // path and query

  // What belongs into the host header.
  std::string authority() const;
  // Two URLs with the same origin may share a connection.
  std::string origin() const;
};

Result<Url> parse_url(std::string_view text);

}  // namespace pocketfleet::net
