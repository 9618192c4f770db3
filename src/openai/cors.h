// Cross-origin requests from browsers. Off unless origins are named: then, and only for those, answers carry the headers that let
// a page of that origin read them. Never with credentials. Immutable; any thread. Errors: an origin that is not one.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "net/http.h"

namespace pocketfleet {

class CorsPolicy {
 public:
  CorsPolicy() = default;
  // "https://app.example", "http://localhost:5173", or "*" for every page of the web.
  static Result<CorsPolicy> of(const std::vector<std::string>& origins);

  bool enabled() const { return any_ || !origins_.empty(); }
  // Adds the headers that this request's origin is entitled to; none for others.
  void add_headers(const net::HttpRequest& request, net::Headers& headers) const;
  // The answer to OPTIONS: 204, which needs no key, since browsers send none with it.
  net::HttpResponse preflight(const net::HttpRequest& request) const;

 private:
  bool allows(std::string_view origin) const;
  std::vector<std::string> origins_;
  bool any_ = false;
};

}  // namespace pocketfleet
