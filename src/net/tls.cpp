#include "net/tls.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "base/files.h"
#include "net/tls_context.h"

namespace pocketfleet::net {

namespace {

constexpr size_t kMostPemBytes = 8u << 20;

std::string openssl_reason() {
  const unsigned long code = ERR_peek_error();
  const char* reason = ERR_reason_error_string(code);
  ERR_clear_error();
  return reason != nullptr ? reason : "OpenSSL does not say why";
}

tl::unexpected<Error> refuse(const std::string& what) {
  return fail(ErrorCode::kInvalidArgument, what, "tls");
}

// The text itself, or what the file holds.
Result<std::string> pem_of(const std::string& pem, const std::string& file, const char* what) {
  if (!pem.empty() || file.empty()) return pem;
  auto text = read_file(file, kMostPemBytes);
  if (!text) return refuse("cannot use " + file + " as " + what + ": " + text.error().message);
  return text;
}

Result<void> use_certificate(SSL_CTX* context, const TlsOptions& options) {
  constexpr const char* kChain = "a certificate chain in PEM";
  constexpr const char* kKey = "the private key in PEM of the certificate";
  PF_TRY(const std::string chain, pem_of(options.certificate_chain_pem, options.certificate_chain_file, kChain));
  PF_TRY(const std::string key_pem, pem_of(options.private_key_pem, options.private_key_file, kKey));
  const auto name = [](const std::string& file) { return file.empty() ? std::string("what was given") : file; };

  ERR_clear_error();
  const std::unique_ptr<BIO, decltype(&BIO_free)> input(BIO_new_mem_buf(chain.data(), static_cast<int>(chain.size())), BIO_free);
  const auto next = [&] {
    return std::unique_ptr<X509, decltype(&X509_free)>(PEM_read_bio_X509(input.get(), nullptr, nullptr, nullptr), X509_free);
  };
  auto certificate = next();
  if (!certificate || SSL_CTX_use_certificate(context, certificate.get()) != 1)
    return refuse("cannot use " + name(options.certificate_chain_file) + " as " + kChain + ": " + openssl_reason());
  while (const auto link = next()) {
    if (SSL_CTX_add1_chain_cert(context, link.get()) != 1)
      return refuse("cannot use " + name(options.certificate_chain_file) + " as " + kChain + ": " + openssl_reason());
  }
  ERR_clear_error();  // the end of the text is an error to OpenSSL

  const std::unique_ptr<BIO, decltype(&BIO_free)> key_input(BIO_new_mem_buf(key_pem.data(), static_cast<int>(key_pem.size())),
                                                            BIO_free);
  // Without a callback OpenSSL asks the terminal for the password.
  const auto no_password = [](char*, int, int, void*) { return -1; };
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
      PEM_read_bio_PrivateKey(key_input.get(), nullptr, no_password, nullptr), EVP_PKEY_free);
  if (!key || SSL_CTX_use_PrivateKey(context, key.get()) != 1)
    return refuse("cannot use " + name(options.private_key_file) + " as " + kKey + ": " + openssl_reason());
  return {};
}

// "a, b" as on the wire: a byte of length before each name.
Result<std::vector<unsigned char>> alpn_wire(const std::vector<std::string>& names) {
  std::vector<unsigned char> wire;
  for (const std::string& name : names) {
    if (name.empty() || name.size() > 255) return refuse("an ALPN name has 1 to 255 bytes");
    wire.push_back(static_cast<unsigned char>(name.size()));
    wire.insert(wire.end(), name.begin(), name.end());
  }
  return wire;
}

int choose_alpn(SSL*, const unsigned char** out, unsigned char* out_size, const unsigned char* in, unsigned in_size,
                void* argument) {
  const auto& ours = *static_cast<const std::vector<unsigned char>*>(argument);
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, out_size, ours.data(), static_cast<unsigned>(ours.size()), in, in_size) !=
      OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  }
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

Result<std::unique_ptr<TlsContext::Impl>> make_context(const TlsOptions& options, bool server) {
  auto impl = std::make_unique<TlsContext::Impl>(SSL_CTX_new(server ? TLS_server_method() : TLS_client_method()));
  SSL_CTX* context = impl->context.get();
  if (context == nullptr) return fail(ErrorCode::kInternal, "OpenSSL could not make a TLS context");
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  // An idle connection gives its buffers back.
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  const bool has_certificate = !options.certificate_chain_file.empty() || !options.certificate_chain_pem.empty();
  if (has_certificate) {
    PF_CHECK_OK(use_certificate(context, options));
  } else if (server) {
    return refuse("a TLS server needs a certificate chain and its key");
  }
  if (!options.trusted_file.empty()) {
    if (SSL_CTX_load_verify_locations(context, options.trusted_file.c_str(), nullptr) != 1)
      return refuse("cannot use " + options.trusted_file + " as trusted authorities in PEM: " + openssl_reason());
  } else if (!server && SSL_CTX_set_default_verify_paths(context) != 1) {
    return refuse("cannot use the system's store as trusted authorities: " + openssl_reason());
  }
  using ClientCertificate = TlsOptions::ClientCertificate;
  if (!server) {
    SSL_CTX_set_verify(context, options.verify_server ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, nullptr);
  } else if (options.client_certificate != ClientCertificate::kNone) {
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    // A resumed session would not show its certificate again.
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(context, 0);
    SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
    if (options.client_certificate == ClientCertificate::kAny)
      SSL_CTX_set_cert_verify_callback(
          context, [](X509_STORE_CTX*, void*) { return 1; }, nullptr);
  }
  PF_TRY(impl->alpn, alpn_wire(options.alpn));
  if (!impl->alpn.empty()) {
    if (server) {
      SSL_CTX_set_alpn_select_cb(context, choose_alpn, &impl->alpn);
    } else {
      SSL_CTX_set_alpn_protos(context, impl->alpn.data(), static_cast<unsigned>(impl->alpn.size()));
    }
  }
  return impl;
}

}  // namespace

TlsContext::TlsContext(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TlsContext::~TlsContext() = default;

SSL_CTX* TlsContext::native() const {
  return impl_->context.get();
}

Result<std::shared_ptr<TlsContext>> TlsContext::server(const TlsOptions& options) {
  PF_TRY(auto impl, make_context(options, true));
  return std::make_shared<TlsContext>(std::move(impl));
}

Result<std::shared_ptr<TlsContext>> TlsContext::client(const TlsOptions& options) {
  PF_TRY(auto impl, make_context(options, false));
  return std::make_shared<TlsContext>(std::move(impl));
}

}  // namespace pocketfleet::net
