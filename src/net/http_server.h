// HTTP/1.1 server over any Stream: keep-alive, chunked both ways, Expect: 100-continue, limits, a total deadline for the header,
// graceful drain. Each connection runs on a strand of its own; the handler runs there, and its CancelToken is set when the client
// goes. Bytes are written as they come; a slow reader makes write() wait (backpressure). Errors of the peer end its connection.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "net/http.h"

namespace pocketfleet::net {

class Stream;

namespace asio = boost::asio;

struct ServerOptions {
  size_t max_header_bytes = 32u << 10;  // more: 431
  size_t max_body_bytes = 8u << 20;     // more: 413, before it is read
  int64_t header_timeout_ms = 10'000;   // from the first byte of a request to the end of its header, in total: 408
  int64_t body_timeout_ms = 60'000;     // in total: 408
  int64_t idle_timeout_ms = 75'000;     // between requests: the connection is closed
  int64_t write_timeout_ms = 60'000;    // one write makes no progress for so long: the client counts as gone
  size_t max_connections = 8'192;       // more: closed at once
  size_t max_connections_per_ip = 0;    // 0: no limit; loopback is never limited
};

// The answer to one request: either send(), or begin(), write()s and end(). An error means that the client has gone.
class ResponseWriter {
 public:
  virtual ~ResponseWriter() = default;
  // The whole answer with a content-length.
  virtual asio::awaitable<Result<void>> send(HttpResponse response) = 0;
  // A streamed answer (chunked).
  virtual asio::awaitable<Result<void>> begin(int status, Headers headers) = 0;
  virtual asio::awaitable<Result<void>> write(std::string_view bytes) = 0;
  virtual asio::awaitable<Result<void>> end() = 0;
  // True once send() or begin() was called.
  virtual bool started() const = 0;
};

// May be called for several connections at once, on different threads. A handler that throws or returns without an answer gives
// 500.
using HttpHandler = std::function<asio::awaitable<void>(HttpRequest& request, ResponseWriter& writer)>;

class HttpServer {
 public:
  // `executor`: an io_context that the caller runs, on one or several threads. Errors that the server answers by itself (400,
  // 408, 413, 431) have the JSON body that `error_body(status, message)` gives.
  HttpServer(asio::any_io_executor executor, ServerOptions options, HttpHandler handler,
             std::function<std::string(int status, std::string_view message)> error_body = {});
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // port 0 takes a free one. Returns the port. May be called for several addresses.
  Result<uint16_t> listen_tcp(const std::string& host, uint16_t port);
  // Removes a stale socket file first; the new one has mode 0600.
  Result<void> listen_unix(const std::string& path);
  // Serves one connection over any transport, on the stream's executor.
  void serve_stream(std::unique_ptr<Stream> stream);

  // Accepts nothing more, closes idle connections, lets running requests end until the deadline, then closes them.
  asio::awaitable<void> drain(int64_t timeout_ms);
  size_t connections() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace pocketfleet::net
