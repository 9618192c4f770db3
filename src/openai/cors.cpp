#include "openai/cors.h"

#include <algorithm>

namespace pocketfleet {

namespace {

bool is_origin(std::string_view text) {
  const size_t scheme = text.find("://");
  if (scheme == 0 || scheme == std::string_view::npos || text.size() > 300) return false;
  const std::string_view host = text.substr(scheme + 3);
  if (host.empty()) return false;
  return std::ranges::all_of(
      host, [](unsigned char c) { return c > 0x20 && c < 0x7F && c != '/' && c != '?' && c != '#' && c != ','; });
}

}  // namespace

Result<CorsPolicy> CorsPolicy::of(const std::vector<std::string>& origins) {
  CorsPolicy policy;
  for (const std::string& origin : origins) {
    if (origin == "*") {
      policy.any_ = true;
    } else if (is_origin(origin)) {
      policy.origins_.push_back(origin);
    } else {
      return fail(ErrorCode::kInvalidArgument,
                  "\"" + origin + "\" is not an origin; write scheme, host and port alone, such as https://app.example",
                  "cors-origin");
    }
  }
  return policy;
}

bool CorsPolicy::allows(std::string_view origin) const {
  return any_ || std::find(origins_.begin(), origins_.end(), origin) != origins_.end();
}

void CorsPolicy::add_headers(const net::HttpRequest& request, net::Headers& headers) const {
  if (!enabled()) return;
  // Caches must not give one origin's answer to another one.
  headers.set("vary", "Origin");
  const auto origin = request.headers.get("origin");
  if (!origin || !allows(*origin)) return;
  headers.set("access-control-allow-origin", any_ ? "*" : std::string(*origin));
  headers.set("access-control-expose-headers", "x-request-id, retry-after, x-should-retry");
}

net::HttpResponse CorsPolicy::preflight(const net::HttpRequest& request) const {
  net::HttpResponse response;
  response.status = 204;
  add_headers(request, response.headers);
  if (!response.headers.contains("access-control-allow-origin")) return response;
  response.headers.set("access-control-allow-methods", "GET, POST, OPTIONS");
  // What the page asks for is granted: the list differs between client libraries (x-stainless-* and others) and guards nothing
  // here.
  const auto asked = request.headers.get("access-control-request-headers");
  const bool sane =
      asked && asked->size() <= 4096 && std::ranges::all_of(*asked, [](unsigned char c) { return c >= 0x20 && c < 0x7F; });
  response.headers.set("access-control-allow-headers", sane ? std::string(*asked) : "authorization, content-type");
  response.headers.set("access-control-max-age", "7200");
  return response;
}

}  // namespace pocketfleet
