// TLS (OpenSSL) over any Stream: TCP, Unix sockets, streams of a tunnel. TlsContext owns certificates and settings and may be
// shared by many streams and threads; TlsStream owns the stream under it and keeps the contract of net/stream.h. After shutdown()
// reading may go on. Certificates and keys are PEM, from files or from memory. Errors: kInvalidArgument names the file that is
// missing or wrong; kProtocol for a peer that is not trusted or breaks TLS; and those of the stream underneath.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "net/stream.h"

struct ssl_ctx_st;

namespace pocketfleet::net {

class TlsContext;

struct TlsOptions {
  std::string certificate_chain_file;  // servers need a chain and its key, clients only for mutual TLS
  std::string private_key_file;
  std::string certificate_chain_pem;  // instead of the files
  std::string private_key_pem;
  std::string trusted_file;  // authorities; empty: those of the system (clients), none (servers)
  std::vector<std::string>
      alpn;                   // in order of preference; empty: no ALPN. A server refuses clients that offer none of these only
  bool verify_server = true;  // clients; false: any certificate is good
  enum class ClientCertificate {
    kNone,
    kTrusted,  // must be there, from an authority in trusted_file
    kAny,      // must be there and its key be proven; who signed it does not matter
  };
  ClientCertificate client_certificate = ClientCertificate::kNone;
};

class TlsStream final : public Stream {
 public:
  ~TlsStream() override;
  asio::awaitable<Result<size_t>> read_some(char* data, size_t size, int64_t timeout_ms) override;
  asio::awaitable<Result<void>> write(std::string_view bytes, int64_t stall_ms) override;
  asio::awaitable<void> shutdown(int64_t timeout_ms) override;
  void cancel_read() override;
  void close() override;
  const std::string& peer() const override;
  asio::any_io_executor executor() const override;

  // What was agreed on; empty for none.
  std::string alpn() const;
  // DER; empty when the peer showed none.
  std::string peer_certificate() const;
  // What a server showed, PEM, its own certificate first.
  std::string peer_chain() const;
  // Keying material of this connection under a label (RFC 8446, 7.5). kInternal where the version of TLS has none that is safe.
  Result<std::string> exporter(std::string_view label, size_t size) const;

  struct Impl;

 private:
  friend class TlsContext;
  explicit TlsStream(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class TlsContext {
 public:
  static Result<std::shared_ptr<TlsContext>> server(const TlsOptions& options);
  static Result<std::shared_ptr<TlsContext>> client(const TlsOptions& options);
  ~TlsContext();

  // Handshakes. The client checks the certificate against `server_name`, a name or an address.
  static asio::awaitable<Result<std::unique_ptr<TlsStream>>> accept(std::shared_ptr<TlsContext> context,
                                                                    std::unique_ptr<Stream> stream, int64_t timeout_ms);
  static asio::awaitable<Result<std::unique_ptr<TlsStream>>> connect(std::shared_ptr<TlsContext> context,
                                                                     std::unique_ptr<Stream> stream, std::string server_name,
                                                                     int64_t timeout_ms);

  struct Impl;
  explicit TlsContext(std::unique_ptr<Impl> impl);
  // OpenSSL's own; lives as long as this.
  ssl_ctx_st* native() const;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace pocketfleet::net
