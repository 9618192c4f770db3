// HTTP/1.1 client over Stream: http://, https:// and unix: addresses. One HttpClient keeps idle connections and reuses them; use
// it on one executor (a strand, or a context with one thread). A request is sent anew once when a kept connection turns out dead
// before any byte of an answer came. Redirects are not followed. BlockingHttpClient is the same for threads, which may share it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "net/http.h"
#include "net/sockets.h"
#include "net/url.h"

namespace pocketfleet::net {

struct ClientOptions {
  int64_t connect_timeout_ms = 10'000;
  int64_t total_timeout_ms = 600'000;  // from the call to the last byte of the answer
  int64_t stall_timeout_ms = 600'000;  // no byte of the answer for so long
  size_t max_header_bytes = 64u << 10;
  size_t max_body_bytes = 64u << 20;  // of the answer
  size_t max_idle_connections = 16;
  std::shared_ptr<TlsContext> tls;  // empty: the system's authorities
};

struct ClientRequest {
  ClientRequest() = default;
  ClientRequest(std::string the_method, std::string the_url, Headers the_headers = {}, std::string the_body = {})
      : method(std::move(the_method)), url(std::move(the_url)), headers(std::move(the_headers)), body(std::move(the_body)) {}
  std::string method = "GET";
  std::string url;
  Headers headers;
  std::string body;
  int64_t total_timeout_ms = 0;  // 0: the client's
  CancelToken cancel;            // looked at while the request runs, at least every 50 ms
};

// Called once the header is there, and for each piece of the body. False ends the request with kCancelled.
using OnHeader = std::function<bool(int status, const Headers& headers)>;
using OnBody = std::function<bool(std::string_view bytes)>;

class HttpClient {
 public:
  explicit HttpClient(ClientOptions options = {});
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // The whole answer. Any status is a value; an error means that there is no complete answer.
  asio::awaitable<Result<HttpResponse>> request(ClientRequest request);
  asio::awaitable<Result<void>> stream(ClientRequest request, OnHeader on_header, OnBody on_body);
  // Closes the connections that are kept.
  void close_idle();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

// Has a thread of its own; several threads may call at once, each waits for its answer.
class BlockingHttpClient {
 public:
  explicit BlockingHttpClient(ClientOptions options = {});
  ~BlockingHttpClient();

  Result<HttpResponse> request(ClientRequest request);
  // The callbacks run on the client's thread and must not block.
  Result<void> stream(ClientRequest request, OnHeader on_header, OnBody on_body);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pocketfleet::net
