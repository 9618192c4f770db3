#include "tunnel/quic_tls.h"

#include <gnutls/crypto.h>
#include <ngtcp2/ngtcp2_crypto_gnutls.h>

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <limits>

#include "tunnel/h2_link.h"
#include "tunnel/identity.h"

namespace pocketfleet::tunnel {

namespace {

// TLS 1.3 without its middlebox disguise, which QUIC forbids.
constexpr const char* kPriorities =
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+AES-128-GCM:+AES-256-GCM:+CHACHA20-POLY1305:"
    "-GROUP-ALL:+GROUP-X25519:+GROUP-SECP256R1:+GROUP-SECP384R1:%DISABLE_TLS13_COMPAT_MODE";
constexpr unsigned kAlpnExtension = 16;
constexpr size_t kMostTextBytes = 200;

gnutls_datum_t datum_of(std::string_view text) {
  return {reinterpret_cast<unsigned char*>(const_cast<char*>(text.data())), static_cast<unsigned>(text.size())};
}

// Reading them costs more than a handshake should; they are shared by all sessions.
gnutls_priority_t priorities() {
  static const gnutls_priority_t value = [] {
    gnutls_priority_t made = nullptr;
    return gnutls_priority_init(&made, kPriorities, nullptr) == 0 ? made : nullptr;
  }();
  return value;
}

struct AlpnOffer {
  bool any = false;
  bool ours = false;
};

int read_alpn(void* context, unsigned id, const unsigned char* data, unsigned size) {
  if (id != kAlpnExtension) return 0;
  auto& offer = *static_cast<AlpnOffer*>(context);
  offer.any = true;
  // Two bytes of length of the whole list; each name has one.
  for (size_t at = 2; at < size;) {
    const size_t length = data[at];
    if (length > size - at - 1) return GNUTLS_E_RECEIVED_ILLEGAL_PARAMETER;
    if (std::string_view(reinterpret_cast<const char*>(data) + at + 1, length) == kQuicAlpn) offer.ours = true;
    at += 1 + length;
  }
  return 0;
}

// GnuTLS lets clients in that offer no ALPN; QUIC and we do not, but for those of old.
template <bool kAcceptLegacy>
int check_client_hello(gnutls_session_t, unsigned, unsigned, unsigned, const gnutls_datum_t* message) {
  AlpnOffer offer;
  const int rv = gnutls_ext_raw_parse(&offer, read_alpn, message, GNUTLS_EXT_RAW_FLAG_TLS_CLIENT_HELLO);
  if (rv < 0) return rv;
  if (offer.ours || (!offer.any && kAcceptLegacy)) return 0;
  return GNUTLS_E_NO_APPLICATION_PROTOCOL;
}

tl::unexpected<Error> broken(const char* what) {
  return fail(ErrorCode::kInternal, std::string("GnuTLS refuses the settings of a QUIC session: ") + what);
}

// What both ends have in common.
Result<QuicSession> make_session(unsigned flags, const QuicCredentials& credentials, bool with_alpn, void* connection) {
  gnutls_session_t made = nullptr;
  if (gnutls_init(&made, flags | GNUTLS_NO_TICKETS) != 0) return broken("init");
  QuicSession session(made);
  if (priorities() == nullptr || gnutls_priority_set(made, priorities()) != 0) return broken("priorities");
  gnutls_session_set_ptr(made, connection);
  if (gnutls_credentials_set(made, GNUTLS_CRD_CERTIFICATE, credentials.handle()) != 0) return broken("credentials");
  const gnutls_datum_t alpn = datum_of(kQuicAlpn);
  if (with_alpn && gnutls_alpn_set_protocols(made, &alpn, 1, 0) != 0) return broken("ALPN");
  return session;
}

}  // namespace

Result<std::shared_ptr<QuicCredentials>> QuicCredentials::make(const std::string& chain_pem, const std::string& key_pem) {
  gnutls_certificate_credentials_t handle = nullptr;
  if (gnutls_certificate_allocate_credentials(&handle) < 0) return fail(ErrorCode::kInternal, "GnuTLS has no memory");
  auto credentials = std::make_shared<QuicCredentials>(handle);
  const gnutls_datum_t chain = datum_of(chain_pem);
  const gnutls_datum_t key = datum_of(key_pem);
  const int rv = gnutls_certificate_set_x509_key_mem(handle, &chain, &key, GNUTLS_X509_FMT_PEM);
  if (rv < 0) {
    return fail(ErrorCode::kInvalidArgument,
                std::string("cannot use this certificate chain and private key (PEM) for QUIC: ") + gnutls_strerror(rv), "tls");
  }
  return credentials;
}

Result<void> QuicCredentials::trust(const std::string& file) {
  const int rv = file.empty() ? gnutls_certificate_set_x509_system_trust(handle_)
                              : gnutls_certificate_set_x509_trust_file(handle_, file.c_str(), GNUTLS_X509_FMT_PEM);
  if (rv > 0) return {};
  const std::string where = file.empty() ? "the system's store" : file;
  return fail(ErrorCode::kInvalidArgument,
              "no trusted authorities in PEM in " + where + (rv < 0 ? std::string(": ") + gnutls_strerror(rv) : ""), "tls");
}

Result<QuicSession> make_relay_session(const QuicCredentials& credentials, bool accept_legacy, void* connection) {
  PF_TRY(QuicSession session, make_session(GNUTLS_SERVER | GNUTLS_NO_AUTO_SEND_TICKET, credentials, true, connection));
  if (ngtcp2_crypto_gnutls_configure_server_session(session.get()) != 0) return broken("QUIC");
  // Nothing is set to verify it: who signed it does not matter, and that its key is the agent's, TLS itself makes sure.
  gnutls_certificate_server_set_request(session.get(), GNUTLS_CERT_REQUIRE);
  gnutls_handshake_set_hook_function(session.get(), GNUTLS_HANDSHAKE_CLIENT_HELLO, GNUTLS_HOOK_POST,
                                     accept_legacy ? check_client_hello<true> : check_client_hello<false>);
  return session;
}

Result<QuicSession> make_agent_session(const QuicCredentials& credentials, const std::string& server_name, bool verify,
                                       bool legacy, void* connection) {
  PF_TRY(QuicSession session, make_session(GNUTLS_CLIENT | GNUTLS_FORCE_CLIENT_CERT, credentials, !legacy, connection));
  if (ngtcp2_crypto_gnutls_configure_client_session(session.get()) != 0) return broken("QUIC");
  boost::system::error_code not_address;
  boost::asio::ip::make_address(server_name, not_address);
  if (not_address && gnutls_server_name_set(session.get(), GNUTLS_NAME_DNS, server_name.data(), server_name.size()) != 0) {
    return broken("server name");
  }
  if (verify) gnutls_session_set_verify_cert(session.get(), server_name.c_str(), 0);
  return session;
}

bool knows_quic_alpn(const QuicSession& session) {
  gnutls_datum_t chosen{};
  return gnutls_alpn_get_selected_protocol(session.get(), &chosen) == 0 &&
         std::string_view(reinterpret_cast<const char*>(chosen.data), chosen.size) == kQuicAlpn;
}

std::string quic_binding(const QuicSession& session) {
  std::string out(kBindingBytes, '\0');
  // Without a context; in TLS 1.3 that is the same as an empty one.
  const int rv =
      gnutls_prf_rfc5705(session.get(), kBindingLabel.size(), kBindingLabel.data(), 0, nullptr, out.size(), out.data());
  return rv == 0 ? out : std::string();
}

std::string quic_peer_certificate(const QuicSession& session) {
  unsigned count = 0;
  const gnutls_datum_t* const shown = gnutls_certificate_get_peers(session.get(), &count);
  if (shown == nullptr || count == 0) return {};
  return std::string(reinterpret_cast<const char*>(shown[0].data), shown[0].size);
}

std::string quic_distrust(const QuicSession& session) {
  const unsigned status = gnutls_session_get_verify_cert_status(session.get());
  // All bits set: it did not come to that.
  if (status == 0 || status == std::numeric_limits<unsigned>::max()) return {};
  gnutls_datum_t text{};
  if (gnutls_certificate_verification_status_print(status, GNUTLS_CRT_X509, &text, 0) != 0) return "it is not trusted";
  std::string out = printable_text(text.data, text.size);
  gnutls_free(text.data);
  return out;
}

bool quic_random(void* data, size_t size) {
  return gnutls_rnd(GNUTLS_RND_RANDOM, data, size) == 0;
}

std::string printable_text(const uint8_t* data, size_t size) {
  std::string text;
  for (size_t i = 0; data != nullptr && i < std::min(size, kMostTextBytes); ++i) {
    text.push_back(data[i] >= 0x20 && data[i] < 0x7f ? static_cast<char>(data[i]) : '?');
  }
  return text;
}

}  // namespace pocketfleet::tunnel
