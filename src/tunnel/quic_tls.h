// TLS of the tunnel's QUIC connections, over GnuTLS: certificates and sessions. For quic_connection.cpp and quic_link.cpp alone.
// A session holds its credentials only by pointer: keep both. Errors: kInvalidArgument for certificates, kInternal.
#pragma once

#include <gnutls/gnutls.h>

#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/result.h"

namespace pocketfleet::tunnel {

inline constexpr std::string_view kQuicAlpn = "pocketfleet/1";

class QuicCredentials {
 public:
  static Result<std::shared_ptr<QuicCredentials>> make(const std::string& chain_pem, const std::string& key_pem);
  // Authorities in PEM; empty: those of the system.
  Result<void> trust(const std::string& file);
  gnutls_certificate_credentials_t handle() const { return handle_; }

  explicit QuicCredentials(gnutls_certificate_credentials_t handle) : handle_(handle) {}
  ~QuicCredentials() { gnutls_certificate_free_credentials(handle_); }
  QuicCredentials(const QuicCredentials&) = delete;
  QuicCredentials& operator=(const QuicCredentials&) = delete;

 private:
  gnutls_certificate_credentials_t handle_;
};

struct QuicSessionDeleter {
  void operator()(gnutls_session_t session) const { gnutls_deinit(session); }
};
using QuicSession = std::unique_ptr<std::remove_pointer_t<gnutls_session_t>, QuicSessionDeleter>;

// `connection` is the ngtcp2_crypto_conn_ref. The relay wants a certificate of the agent, whoever signed it.
Result<QuicSession> make_relay_session(const QuicCredentials& credentials, bool accept_legacy, void* connection);
// `server_name` must outlive the session.
Result<QuicSession> make_agent_session(const QuicCredentials& credentials, const std::string& server_name, bool verify,
                                       bool legacy, void* connection);

bool knows_quic_alpn(const QuicSession& session);
// 32 bytes that only this connection has; empty when there are none.
std::string quic_binding(const QuicSession& session);
// DER; empty when there is none.
std::string quic_peer_certificate(const QuicSession& session);
// Why the peer's certificate was refused; empty when that was not it.
std::string quic_distrust(const QuicSession& session);
// False when there is no randomness.
bool quic_random(void* data, size_t size);

// Text of a stranger, as far as it can be shown.
std::string printable_text(const uint8_t* data, size_t size);

}  // namespace pocketfleet::tunnel
