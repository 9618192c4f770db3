// Streams over sockets: plain (TCP and Unix) and TLS over OpenSSL, and how a client gets one. TlsContext owns certificates and
// settings and may be shared by many streams and threads. A stream from a connect helper runs on the coroutine's executor.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <memory>
#include <string>
#include <vector>

#include "net/stream.h"

namespace pocketfleet::net {

// Takes a connected socket over. Its executor must be a strand, or of a context with one thread.
std::unique_ptr<Stream> make_socket_stream(asio::generic::stream_protocol::socket socket, std::string peer);

struct TlsOptions {
  std::string certificate_chain_file;  // PEM; servers need both, clients only for mutual TLS
  std::string private_key_file;        // PEM
  std::string trusted_file;            // PEM of authorities; empty: those of the system (clients), none (servers)
  std::vector<std::string> alpn;       // in order of preference; empty: no ALPN
  bool require_client_certificate = false;
};

class TlsContext {
 public:
  // kInvalidArgument names the file that is missing or wrong.
  static Result<std::shared_ptr<TlsContext>> server(const TlsOptions& options);
  static Result<std::shared_ptr<TlsContext>> client(const TlsOptions& options);
  ~TlsContext();

  // Handshakes over a connected socket. The client checks the certificate against `server_name`, a name or an address.
  static asio::awaitable<Result<std::unique_ptr<Stream>>> accept(std::shared_ptr<TlsContext> context,
                                                                 asio::generic::stream_protocol::socket socket, std::string peer,
                                                                 int64_t timeout_ms);
  static asio::awaitable<Result<std::unique_ptr<Stream>>> connect(std::shared_ptr<TlsContext> context,
                                                                  asio::generic::stream_protocol::socket socket,
                                                                  std::string server_name, int64_t timeout_ms);

  struct Impl;
  explicit TlsContext(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

// Tries every address of the host until one answers; timeout_ms is for all of it, name resolution included.
asio::awaitable<Result<std::unique_ptr<Stream>>> connect_tcp(std::string host, uint16_t port, int64_t timeout_ms);
asio::awaitable<Result<std::unique_ptr<Stream>>> connect_unix(std::string path, int64_t timeout_ms);
asio::awaitable<Result<std::unique_ptr<Stream>>> connect_tls(std::shared_ptr<TlsContext> context, std::string host, uint16_t port,
                                                             int64_t timeout_ms);

}  // namespace pocketfleet::net
