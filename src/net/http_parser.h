// Incremental parsers of HTTP/1.1 requests and responses: bytes in, values out, no I/O. One parser a message. They are stricter
// than the standard where laxness lets two servers disagree about where a message ends: one content-length at most, never beside
// transfer-encoding, no folded headers, no bare CR or LF, no NUL. Memory is bounded by the limits given. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "net/http.h"

namespace pocketfleet::net {

struct ParserLimits {
  size_t max_header_bytes = 32u << 10;
  size_t max_body_bytes = 8u << 20;
};

class RequestParser {
 public:
  explicit RequestParser(const ParserLimits& limits);
  ~RequestParser();

  // Offers the bytes that have come and not been taken yet; returns how many it took. Call again with the rest and what follows
  // it. Takes nothing after the end of the message or after an error.
  size_t put(std::string_view bytes);

  bool header_done() const;
  bool done() const;
  // 0, or the status to refuse the request with (400, 413, 417, 431, 501, 505); the connection cannot be used after it.
  int error_status() const;
  std::string_view error_message() const;

  bool keep_alive() const;
  bool http_1_0() const;
  bool expects_continue() const;

  // Method, target, path, query, headers; the body once done.
  HttpRequest& request();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class ResponseParser {
 public:
  // `head`: the response answers a HEAD request and has no body, whatever its headers say.
  ResponseParser(const ParserLimits& limits, bool head);
  ~ResponseParser();

  size_t put(std::string_view bytes);
  // The peer has closed; ends a body that has no other end. After it, either done() or failed().
  void put_end();

  bool header_done() const;
  bool done() const;
  bool failed() const;
  std::string_view error_message() const;
  bool keep_alive() const;

  int status() const;
  Headers& headers();
  // Body bytes since the last call. max_body_bytes bounds the sum of all.
  std::string take_body();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pocketfleet::net
