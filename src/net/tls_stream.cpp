#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>

#include "base/clock.h"
#include "net/tls_context.h"

namespace pocketfleet::net {

namespace {

constexpr size_t kIdleReadBytes = 512;        // what a connection that says nothing holds
constexpr size_t kBulkReadBytes = 32u << 10;  // two records
constexpr size_t kFlushBytes = 64u << 10;     // sealed in one go before the stream underneath gets them
constexpr int64_t kFarewellMs = 1'000;

BIO_METHOD* bio_method();

}  // namespace

// OpenSSL reads from `input` and appends to `out`; between its calls the coroutines move those to and from the stream underneath.
struct TlsStream::Impl {
  Impl(std::shared_ptr<TlsContext> the_context, std::unique_ptr<Stream> the_lower)
      : context(std::move(the_context)),
        lower(std::move(the_lower)),
        ssl(SSL_new(context->native()), SSL_free),
        flushed(lower->executor()) {
    BIO* bio = BIO_new(bio_method());
    BIO_set_data(bio, this);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl.get(), bio, bio);
  }

  std::shared_ptr<TlsContext> context;
  std::unique_ptr<Stream> lower;
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl;

  std::string_view input;  // lies in `small` or `bulk`
  bool input_ended = false;
  char small[kIdleReadBytes];
  std::unique_ptr<char[]> bulk;
  bool plenty = false;  // the last read filled its buffer

  std::string out;
  bool flushing = false;
  bool said_farewell = false;
  asio::steady_timer flushed;

  asio::awaitable<Result<void>> handshake(int64_t timeout_ms);
  asio::awaitable<Result<void>> fill(int64_t timeout_ms);
  asio::awaitable<Result<void>> flush(int64_t stall_ms);
  tl::unexpected<Error> failure(int code, std::string_view doing) const;
};

namespace {

int bio_read(BIO* bio, char* data, int size) {
  auto* impl = static_cast<TlsStream::Impl*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  if (impl->input.empty()) {
    if (impl->input_ended) return 0;
    BIO_set_retry_read(bio);
    return -1;
  }
  const size_t count = impl->input.copy(data, static_cast<size_t>(size));
  impl->input.remove_prefix(count);
  return static_cast<int>(count);
}

int bio_write(BIO* bio, const char* data, int size) {
  auto* impl = static_cast<TlsStream::Impl*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  impl->out.append(data, static_cast<size_t>(size));
  return size;
}

long bio_ctrl(BIO* bio, int command, long, void*) {
  auto* impl = static_cast<TlsStream::Impl*>(BIO_get_data(bio));
  if (command == BIO_CTRL_FLUSH) return 1;
  if (command == BIO_CTRL_EOF) return impl->input_ended && impl->input.empty() ? 1 : 0;
  return 0;
}

BIO_METHOD* bio_method() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "stream");
    BIO_meth_set_read(made, bio_read);
    BIO_meth_set_write(made, bio_write);
    BIO_meth_set_ctrl(made, bio_ctrl);
    return made;
  }();
  return method;
}

// Counts down from a timeout; negative stays for ever.
class Until {
 public:
  explicit Until(int64_t timeout_ms) : at_(timeout_ms < 0 ? -1 : now_ms() + timeout_ms) {}
  int64_t left_ms() const { return at_ < 0 ? kNoDeadline : std::max<int64_t>(at_ - now_ms(), 0); }

 private:
  int64_t at_;
};

}  // namespace

asio::awaitable<Result<void>> TlsStream::Impl::fill(int64_t timeout_ms) {
  char* buffer = small;
  size_t size = sizeof small;
  if (plenty) {
    if (!bulk) bulk = std::make_unique<char[]>(kBulkReadBytes);
    buffer = bulk.get();
    size = kBulkReadBytes;
  }
  PF_CO_TRY(const size_t count, co_await lower->read_some(buffer, size, timeout_ms));
  input = {buffer, count};
  input_ended = count == 0;
  plenty = count >= sizeof small;
  if (!plenty && buffer == small) bulk.reset();
  co_return Result<void>();
}

asio::awaitable<Result<void>> TlsStream::Impl::flush(int64_t stall_ms) {
  // One write underneath at a time: whoever comes second waits, so that backpressure reaches both.
  const Until until(stall_ms);
  while (flushing) {
    const int64_t left = until.left_ms();
    if (left == 0) co_return fail(ErrorCode::kDeadlineExceeded, "writing to " + lower->peer() + ": the deadline passed");
    flushed.expires_after(std::chrono::milliseconds(left < 0 ? 3'600'000 : left));
    boost::system::error_code ignored;
    co_await flushed.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  flushing = true;
  Result<void> result;
  while (!out.empty() && result) {
    const std::string sending = std::exchange(out, {});
    result = co_await lower->write(sending, stall_ms);
  }
  flushing = false;
  flushed.cancel();
  co_return result;
}

tl::unexpected<Error> TlsStream::Impl::failure(int code, std::string_view doing) const {
  const std::string& peer = lower->peer();
  const long verified = SSL_get_verify_result(ssl.get());
  if (SSL_is_init_finished(ssl.get()) == 0 && verified != X509_V_OK && SSL_get_verify_mode(ssl.get()) != SSL_VERIFY_NONE) {
    return fail(ErrorCode::kProtocol,
                "the certificate of " + peer + " is not trusted: " + X509_verify_cert_error_string(verified));
  }
  const unsigned long error = ERR_peek_error();
  const char* reason = ERR_reason_error_string(error);
  const bool cut = code == SSL_ERROR_SYSCALL || (input_ended && ERR_GET_REASON(error) == SSL_R_UNEXPECTED_EOF_WHILE_READING);
  ERR_clear_error();
  // An end without TLS's own farewell may have been forged; who reads to the end must know.
  if (cut) return fail(ErrorCode::kConnectionClosed, peer + " cut the TLS connection");
  return fail(ErrorCode::kProtocol,
              std::string(doing) + " with " + peer + " failed: " + (reason != nullptr ? reason : "no reason"));
}

asio::awaitable<Result<void>> TlsStream::Impl::handshake(int64_t timeout_ms) {
  const Until until(timeout_ms);
  for (;;) {
    ERR_clear_error();
    const int result = SSL_do_handshake(ssl.get());
    const int code = result == 1 ? SSL_ERROR_NONE : SSL_get_error(ssl.get(), result);
    if (code != SSL_ERROR_NONE && code != SSL_ERROR_WANT_READ) {
      auto error = failure(code, "TLS");
      // The alert tells the other side; whether it arrives changes nothing here.
      if (!out.empty()) co_await flush(std::min<int64_t>(kFarewellMs, timeout_ms < 0 ? kFarewellMs : until.left_ms()));
      co_return error;
    }
    if (!out.empty()) PF_CO_CHECK_OK(co_await flush(until.left_ms()));
    if (code == SSL_ERROR_NONE) co_return Result<void>();
    auto filled = co_await fill(until.left_ms());
    if (!filled && filled.error().code == ErrorCode::kDeadlineExceeded)
      co_return fail(ErrorCode::kDeadlineExceeded, "the TLS handshake with " + lower->peer() + ": the deadline passed");
    if (!filled) co_return filled;
  }
}

TlsStream::TlsStream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TlsStream::~TlsStream() = default;

asio::awaitable<Result<size_t>> TlsStream::read_some(char* data, size_t size, int64_t timeout_ms) {
  Impl& self = *impl_;
  const Until until(timeout_ms);
  for (;;) {
    ERR_clear_error();
    size_t count = 0;
    const int result = SSL_read_ex(self.ssl.get(), data, size, &count);
    if (result == 1) co_return count;
    const int code = SSL_get_error(self.ssl.get(), result);
    if (code == SSL_ERROR_ZERO_RETURN) co_return size_t{0};
    if (code != SSL_ERROR_WANT_READ) {
      auto error = self.failure(code, "TLS");
      if (!self.out.empty() && !self.flushing) co_await self.flush(kFarewellMs);
      co_return error;
    }
    // Answers of TLS itself, such as a key update. Somebody who writes takes them along.
    if (!self.out.empty() && !self.flushing) PF_CO_CHECK_OK(co_await self.flush(until.left_ms()));
    PF_CO_CHECK_OK(co_await self.fill(until.left_ms()));
  }
}

asio::awaitable<Result<void>> TlsStream::write(std::string_view bytes, int64_t stall_ms) {
  Impl& self = *impl_;
  while (!bytes.empty()) {
    while (!bytes.empty() && self.out.size() < kFlushBytes) {
      ERR_clear_error();
      size_t count = 0;
      const int result = SSL_write_ex(self.ssl.get(), bytes.data(), bytes.size(), &count);
      if (result != 1) co_return self.failure(SSL_get_error(self.ssl.get(), result), "TLS");
      bytes.remove_prefix(count);
    }
    PF_CO_CHECK_OK(co_await self.flush(stall_ms));
  }
  co_return Result<void>();
}

asio::awaitable<void> TlsStream::shutdown(int64_t timeout_ms) {
  Impl& self = *impl_;
  if (std::exchange(self.said_farewell, true) || SSL_is_init_finished(self.ssl.get()) == 0) co_return;
  const int64_t limit_ms = timeout_ms < 0 ? kFarewellMs : std::min(timeout_ms, kFarewellMs);
  ERR_clear_error();
  SSL_shutdown(self.ssl.get());
  ERR_clear_error();
  const auto sent = co_await self.flush(limit_ms);
  if (sent) co_await self.lower->shutdown(limit_ms);
}

void TlsStream::cancel_read() {
  impl_->lower->cancel_read();
}
void TlsStream::close() {
  impl_->lower->close();
  impl_->flushed.cancel();
}
const std::string& TlsStream::peer() const {
  return impl_->lower->peer();
}
asio::any_io_executor TlsStream::executor() const {
  return impl_->lower->executor();
}

std::string TlsStream::alpn() const {
  const unsigned char* name = nullptr;
  unsigned size = 0;
  SSL_get0_alpn_selected(impl_->ssl.get(), &name, &size);
  return std::string(reinterpret_cast<const char*>(name), size);
}

std::string TlsStream::peer_certificate() const {
  X509* certificate = SSL_get0_peer_certificate(impl_->ssl.get());
  if (certificate == nullptr) return {};
  unsigned char* der = nullptr;
  const int size = i2d_X509(certificate, &der);
  if (size <= 0) return {};
  std::string out(reinterpret_cast<char*>(der), static_cast<size_t>(size));
  OPENSSL_free(der);
  return out;
}

std::string TlsStream::peer_chain() const {
  const STACK_OF(X509)* chain = SSL_get_peer_cert_chain(impl_->ssl.get());
  const std::unique_ptr<BIO, decltype(&BIO_free)> text(BIO_new(BIO_s_mem()), BIO_free);
  for (int i = 0; chain != nullptr && text && i < sk_X509_num(chain); ++i)
    PEM_write_bio_X509(text.get(), sk_X509_value(chain, i));
  char* data = nullptr;
  const long size = text ? BIO_get_mem_data(text.get(), &data) : 0;
  return size > 0 ? std::string(data, static_cast<size_t>(size)) : std::string();
}

Result<std::string> TlsStream::exporter(std::string_view label, size_t size) const {
  SSL* ssl = impl_->ssl.get();
  // Before 1.3, and without the extended master secret, two connections can be made to share one secret (RFC 7627).
  if (SSL_version(ssl) < TLS1_3_VERSION && SSL_get_extms_support(ssl) != 1)
    return fail(ErrorCode::kProtocol, "the TLS of " + peer() + " is too old to be bound to; 1.3 is wanted");
  std::string out(size, '\0');
  if (SSL_export_keying_material(ssl, reinterpret_cast<unsigned char*>(out.data()), size, label.data(), label.size(), nullptr, 0,
                                 0) != 1)
    return fail(ErrorCode::kInternal, "OpenSSL could not export keying material");
  return out;
}

asio::awaitable<Result<std::unique_ptr<TlsStream>>> TlsContext::accept(std::shared_ptr<TlsContext> context,
                                                                       std::unique_ptr<Stream> stream, int64_t timeout_ms) {
  auto impl = std::make_unique<TlsStream::Impl>(std::move(context), std::move(stream));
  SSL_set_accept_state(impl->ssl.get());
  PF_CO_CHECK_OK(co_await impl->handshake(timeout_ms));
  co_return Result<std::unique_ptr<TlsStream>>(std::unique_ptr<TlsStream>(new TlsStream(std::move(impl))));
}

asio::awaitable<Result<std::unique_ptr<TlsStream>>> TlsContext::connect(std::shared_ptr<TlsContext> context,
                                                                        std::unique_ptr<Stream> stream, std::string server_name,
                                                                        int64_t timeout_ms) {
  auto impl = std::make_unique<TlsStream::Impl>(std::move(context), std::move(stream));
  SSL* ssl = impl->ssl.get();
  SSL_set_connect_state(ssl);
  boost::system::error_code not_address;
  asio::ip::make_address(server_name, not_address);
  if (not_address) {
    SSL_set_tlsext_host_name(ssl, server_name.c_str());
    SSL_set1_host(ssl, server_name.c_str());
  } else {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), server_name.c_str());
  }
  SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  PF_CO_CHECK_OK(co_await impl->handshake(timeout_ms));
  co_return Result<std::unique_ptr<TlsStream>>(std::unique_ptr<TlsStream>(new TlsStream(std::move(impl))));
}

}  // namespace pocketfleet::net
