#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "net/socket_state.h"
#include "net/sockets.h"

namespace pocketfleet::net {

namespace {

namespace ssl = asio::ssl;
using boost::system::error_code;
using Socket = asio::generic::stream_protocol::socket;

class TlsStream final : public Stream {
 public:
  TlsStream(std::shared_ptr<TlsContext> context, ssl::context& native, Socket socket, std::string peer)
      : context_(std::move(context)),
        stream_(std::move(socket), native),
        peer_(std::move(peer)),
        deadlines_(std::make_shared<SocketDeadlines>(stream_.get_executor())) {}

  ssl::stream<Socket>& native() { return stream_; }

  asio::awaitable<Result<void>> handshake(ssl::stream_base::handshake_type role, int64_t timeout_ms) {
    error_code ec;
    deadlines_->start(SocketDeadlines::kRead, timeout_ms);
    co_await stream_.async_handshake(role, asio::bind_cancellation_slot(deadlines_->slot(SocketDeadlines::kRead),
                                                                        asio::redirect_error(asio::use_awaitable, ec)));
    const bool timed_out = deadlines_->finish(SocketDeadlines::kRead);
    if (!ec) co_return Result<void>();
    const long verified = SSL_get_verify_result(stream_.native_handle());
    if (verified != X509_V_OK) {
      co_return fail(ErrorCode::kProtocol,
                     "the certificate of " + peer_ + " is not trusted: " + X509_verify_cert_error_string(verified));
    }
    if (ec.category() == asio::error::get_ssl_category()) {
      co_return fail(ErrorCode::kProtocol, "TLS with " + peer_ + " failed: " + ec.message());
    }
    co_return socket_error(ec, timed_out, "the TLS handshake with " + peer_);
  }

  asio::awaitable<Result<size_t>> read_some(char* data, size_t size, int64_t timeout_ms) override {
    error_code ec;
    deadlines_->start(SocketDeadlines::kRead, timeout_ms);
    const size_t count = co_await stream_.async_read_some(
        asio::buffer(data, size),
        asio::bind_cancellation_slot(deadlines_->slot(SocketDeadlines::kRead), asio::redirect_error(asio::use_awaitable, ec)));
    const bool timed_out = deadlines_->finish(SocketDeadlines::kRead);
    if (!ec) co_return count;
    if (ec == asio::error::eof) co_return size_t{0};
    // An end without TLS's own farewell may have been forged; who reads to the end must know.
    if (ec == ssl::error::stream_truncated) co_return fail(ErrorCode::kConnectionClosed, peer_ + " cut the TLS connection");
    co_return socket_error(ec, timed_out, "reading from " + peer_);
  }

  asio::awaitable<Result<void>> write(std::string_view bytes, int64_t stall_ms) override {
    while (!bytes.empty()) {
      error_code ec;
      deadlines_->start(SocketDeadlines::kWrite, stall_ms);
      const size_t count = co_await stream_.async_write_some(
          asio::buffer(bytes.data(), bytes.size()),
          asio::bind_cancellation_slot(deadlines_->slot(SocketDeadlines::kWrite), asio::redirect_error(asio::use_awaitable, ec)));
      const bool timed_out = deadlines_->finish(SocketDeadlines::kWrite);
      bytes.remove_prefix(count);
      if (ec) co_return socket_error(ec, timed_out, "writing to " + peer_);
    }
    co_return Result<void>();
  }

  asio::awaitable<void> shutdown(int64_t timeout_ms) override {
    // Sends our farewell and waits for the peer's. When the peer is in the middle of sending, its bytes are read and dropped:
    // closing over unread bytes would reset the connection and destroy the answer that the peer is about to read.
    const int64_t limit_ms = timeout_ms < 0 ? 1'000 : std::min<int64_t>(timeout_ms, 1'000);
    error_code ec;
    deadlines_->start(SocketDeadlines::kRead, limit_ms);
    co_await stream_.async_shutdown(
        asio::bind_cancellation_slot(deadlines_->slot(SocketDeadlines::kRead), asio::redirect_error(asio::use_awaitable, ec)));
    char dropped[4'096];
    for (int i = 0; i < 1'024 && ec && ec.category() == asio::error::get_ssl_category() && ec != ssl::error::stream_truncated;
         ++i) {
      error_code raw;
      co_await stream_.next_layer().async_read_some(
          asio::buffer(dropped),
          asio::bind_cancellation_slot(deadlines_->slot(SocketDeadlines::kRead), asio::redirect_error(asio::use_awaitable, raw)));
      if (raw) break;
    }
    deadlines_->finish(SocketDeadlines::kRead);
  }

  void cancel_read() override { deadlines_->cancel(SocketDeadlines::kRead); }
  void close() override {
    error_code ignored;
    stream_.lowest_layer().close(ignored);
    deadlines_->stop();
  }
  const std::string& peer() const override { return peer_; }
  asio::any_io_executor executor() const override { return const_cast<ssl::stream<Socket>&>(stream_).get_executor(); }

 private:
  std::shared_ptr<TlsContext> context_;
  ssl::stream<Socket> stream_;
  std::string peer_;
  std::shared_ptr<SocketDeadlines> deadlines_;
};

}  // namespace

struct TlsContext::Impl {
  explicit Impl(ssl::context::method method) : context(method) {}
  ssl::context context;
  std::vector<unsigned char> alpn;  // as on the wire: length and name, each
};

namespace {

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
  auto impl = std::make_unique<TlsContext::Impl>(server ? ssl::context::tls_server : ssl::context::tls_client);
  ssl::context& context = impl->context;
  SSL_CTX* native = context.native_handle();
  SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
  // An idle connection gives its buffers back.
  SSL_CTX_set_mode(native, SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_options(native, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  error_code ec;
  const auto refuse = [&](std::string_view what, const std::string& file) {
    return fail(ErrorCode::kInvalidArgument, "cannot use " + file + " as " + std::string(what) + ": " + ec.message(), "tls");
  };
  if (!options.certificate_chain_file.empty()) {
    context.use_certificate_chain_file(options.certificate_chain_file, ec);
    if (ec) return refuse("a certificate chain in PEM", options.certificate_chain_file);
    context.use_private_key_file(options.private_key_file, ssl::context::pem, ec);
    if (ec) return refuse("the private key in PEM of the certificate", options.private_key_file);
  } else if (server) {
    return fail(ErrorCode::kInvalidArgument, "a TLS server needs a certificate chain and its key", "tls");
  }
  if (!options.trusted_file.empty()) {
    context.load_verify_file(options.trusted_file, ec);
    if (ec) return refuse("trusted authorities in PEM", options.trusted_file);
  } else if (!server) {
    context.set_default_verify_paths(ec);
    if (ec) return refuse("trusted authorities", "the system's store");
  }
  if (!server) {
    context.set_verify_mode(ssl::verify_peer, ec);
  } else if (options.require_client_certificate) {
    context.set_verify_mode(ssl::verify_peer | ssl::verify_fail_if_no_peer_cert, ec);
  }
  for (const std::string& name : options.alpn) {
    if (name.empty() || name.size() > 255) return fail(ErrorCode::kInvalidArgument, "an ALPN name has 1 to 255 bytes", "tls");
    impl->alpn.push_back(static_cast<unsigned char>(name.size()));
    impl->alpn.insert(impl->alpn.end(), name.begin(), name.end());
  }
  if (!impl->alpn.empty()) {
    if (server) {
      SSL_CTX_set_alpn_select_cb(native, choose_alpn, &impl->alpn);
    } else {
      SSL_CTX_set_alpn_protos(native, impl->alpn.data(), static_cast<unsigned>(impl->alpn.size()));
    }
  }
  return impl;
}

}  // namespace

TlsContext::TlsContext(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TlsContext::~TlsContext() = default;

Result<std::shared_ptr<TlsContext>> TlsContext::server(const TlsOptions& options) {
  PF_TRY(auto impl, make_context(options, true));
  return std::make_shared<TlsContext>(std::move(impl));
}

Result<std::shared_ptr<TlsContext>> TlsContext::client(const TlsOptions& options) {
  PF_TRY(auto impl, make_context(options, false));
  return std::make_shared<TlsContext>(std::move(impl));
}

asio::awaitable<Result<std::unique_ptr<Stream>>> TlsContext::accept(std::shared_ptr<TlsContext> context, Socket socket,
                                                                    std::string peer, int64_t timeout_ms) {
  ssl::context& native = context->impl_->context;
  auto stream = std::make_unique<TlsStream>(std::move(context), native, std::move(socket), std::move(peer));
  PF_CO_CHECK_OK(co_await stream->handshake(ssl::stream_base::server, timeout_ms));
  co_return Result<std::unique_ptr<Stream>>(std::move(stream));
}

asio::awaitable<Result<std::unique_ptr<Stream>>> TlsContext::connect(std::shared_ptr<TlsContext> context, Socket socket,
                                                                     std::string server_name, int64_t timeout_ms) {
  ssl::context& native = context->impl_->context;
  auto stream = std::make_unique<TlsStream>(std::move(context), native, std::move(socket), server_name);
  SSL* handle = stream->native().native_handle();
  error_code not_address;
  asio::ip::make_address(server_name, not_address);
  if (not_address) {
    SSL_set_tlsext_host_name(handle, server_name.c_str());
    SSL_set1_host(handle, server_name.c_str());
  } else {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(handle), server_name.c_str());
  }
  SSL_set_hostflags(handle, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  PF_CO_CHECK_OK(co_await stream->handshake(ssl::stream_base::client, timeout_ms));
  co_return Result<std::unique_ptr<Stream>>(std::move(stream));
}

}  // namespace pocketfleet::net
