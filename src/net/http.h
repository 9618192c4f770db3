// HTTP messages as values. Header names compare without case and keep their order. No I/O, no threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cancel.h"

namespace pocketfleet::net {

class Headers {
 public:
  Headers() = default;
  Headers(std::initializer_list<std::pair<std::string, std::string>> items) : items_(items) {}
  // The first header of that name.
  std::optional<std::string_view> get(std::string_view name) const;
  void add(std::string name, std::string value) { items_.emplace_back(std::move(name), std::move(value)); }
  // Replaces every header of that name.
  void set(std::string_view name, std::string value);
  bool contains(std::string_view name) const { return get(name).has_value(); }
  const std::vector<std::pair<std::string, std::string>>& items() const { return items_; }

 private:
  std::vector<std::pair<std::string, std::string>> items_;
};

struct HttpRequest {
  std::string method;
  std::string target;  // as sent: path and query
  std::string path;    // percent-decoded, without the query
  std::string query;
  Headers headers;
  std::string body;
  std::string remote;       // "127.0.0.1:4711" or "unix"
  int64_t received_ms = 0;  // Clock::now_ms() when the header was complete
  CancelToken gone;         // set when the client closes its connection before the answer has ended
};

struct HttpResponse {
  // Not an aggregate: g++ 12 destroys a brace-initialised aggregate twice when it is an argument inside a co_await expression.
  HttpResponse() = default;
  explicit HttpResponse(int the_status, Headers the_headers = {}, std::string the_body = {})
      : status(the_status), headers(std::move(the_headers)), body(std::move(the_body)) {}
  int status = 200;
  Headers headers;
  std::string body;
};

std::string_view reason_phrase(int status);

}  // namespace pocketfleet::net
