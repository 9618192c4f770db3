// How a QUIC connection ends, and what each end learns of why.
#include <utility>

#include "tunnel/quic_connection.h"

namespace pocketfleet::tunnel {

namespace {

constexpr size_t kMostReasonBytes = 200;
constexpr uint64_t kRefused = 1;  // code of the application when it closes

}  // namespace

void QuicConnection::close_for(int rv, Error error) {
  ngtcp2_connection_close_error reason;
  ngtcp2_connection_close_error_default(&reason);
  if (rv == NGTCP2_ERR_CRYPTO) {
    ngtcp2_connection_close_error_set_transport_error_tls_alert(&reason, ngtcp2_conn_get_tls_alert(conn_), nullptr, 0);
  } else {
    ngtcp2_connection_close_error_set_transport_error_liberr(&reason, rv, nullptr, 0);
  }
  end(std::move(error), write_close(reason));
}

void QuicConnection::close(const std::string& why, bool refused) {
  if (error_) return;
  ngtcp2_connection_close_error reason;
  ngtcp2_connection_close_error_default(&reason);
  const std::string_view text = std::string_view(why).substr(0, kMostReasonBytes);
  if (established_) {
    ngtcp2_connection_close_error_set_application_error(&reason, refused ? kRefused : 0, quic_bytes(text), text.size());
  } else {
    ngtcp2_connection_close_error_set_transport_error(&reason, NGTCP2_CONNECTION_REFUSED, nullptr, 0);
  }
  std::string packet = write_close(reason);
  end(Error{ErrorCode::kConnectionClosed, "the link to " + facts_.peer + " was closed here: " + why, {}, 0}, std::move(packet));
}

void QuicConnection::end(Error error, std::string last_packet) {
  if (error_) return;
  error_ = std::move(error);
  timer_.cancel();
  address_timer_.cancel();
  streams_.fail_all(*error_);
  // Their streams let go of a host that they no longer have.
  arrivals_.clear();
  user_streams_ = 0;
  changed_.ring();
  if (!server_) {
    socket_->close();
  } else if (const auto router = router_.lock()) {
    router->on_ended(*this, std::move(last_packet));
  }
}

Error QuicConnection::peer_error() {
  Error error{ErrorCode::kConnectionClosed, {}, {}, 0};
  if (forgotten_by_peer_) {
    error.message = facts_.peer + " knows nothing of this link any more";
    return error;
  }
  ngtcp2_connection_close_error reason;
  ngtcp2_connection_close_error_default(&reason);
  ngtcp2_conn_get_connection_close_error(conn_, &reason);
  const std::string text = printable_text(reason.reason, reason.reasonlen);
  const std::string said = text.empty() ? std::string() : ": " + text;
  if (reason.type == NGTCP2_CONNECTION_CLOSE_ERROR_CODE_TYPE_APPLICATION) {
    const bool refused = !server_ && reason.error_code == kRefused;
    if (refused) error.code = ErrorCode::kPermissionDenied;
    error.message = facts_.peer + (refused ? " refuses us" : " closed the link") + said;
    return error;
  }
  const uint64_t code = reason.error_code;
  if (code >= NGTCP2_CRYPTO_ERROR && code <= NGTCP2_CRYPTO_ERROR + 0xff) {
    const auto alert = static_cast<gnutls_alert_description_t>(code - NGTCP2_CRYPTO_ERROR);
    const char* const name = gnutls_alert_get_name(alert);
    const bool unknown = alert == GNUTLS_A_NO_APPLICATION_PROTOCOL;
    error.code = unknown ? ErrorCode::kUnsupportedParameter : ErrorCode::kProtocol;
    error.message = unknown ? facts_.peer + (settings_.legacy ? " takes only those who know its protocol"
                                                              : " does not know the protocol " + std::string(kQuicAlpn))
                            : facts_.peer + " refuses the TLS handshake: " + (name != nullptr ? name : "unknown alert");
    return error;
  }
  if (code == NGTCP2_CONNECTION_REFUSED) {
    error.message = facts_.peer + " takes no more links now";
    return error;
  }
  if (code != NGTCP2_NO_ERROR) error.code = ErrorCode::kProtocol;
  error.message = facts_.peer + " closed the QUIC connection with code " + std::to_string(code) + said;
  return error;
}

Error QuicConnection::tls_error() {
  Error error{ErrorCode::kProtocol, "the TLS handshake with " + facts_.peer + " failed", {}, 0};
  const std::string distrust = server_ || !settings_.verify ? std::string() : quic_distrust(session_);
  if (!distrust.empty()) {
    error.message = "the certificate of " + facts_.peer + " is not good for \"" + settings_.server_name + "\": " + distrust;
    return error;
  }
  const char* const name = gnutls_alert_get_name(static_cast<gnutls_alert_description_t>(ngtcp2_conn_get_tls_alert(conn_)));
  if (name != nullptr) error.message += std::string(": ") + name;
  return error;
}

void QuicConnection::end_with_last_stream() {
  ending_with_last_ = true;
  finish_if_idle();
}

void QuicConnection::finish_if_idle() {
  if (!ending_with_last_ || error_ || user_streams_ > 0) return;
  const QuicStreamState* const control = streams_.find(0);
  if (control != nullptr && !control->out_dead && control->out.held() > 0) return;
  close("the relay went away; dial again", false);
}

asio::awaitable<Error> QuicConnection::wait_ended() {
  const auto self = shared_from_this();
  while (!self->error_) co_await self->changed_.wait(deadline_after(net::kNoDeadline));
  co_return *self->error_;
}

}  // namespace pocketfleet::tunnel
