#include "tunnel/quic_connection.h"

#include <algorithm>
#include <array>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <cstring>
#include <limits>
#include <utility>

namespace pocketfleet::tunnel {

namespace {

using boost::system::error_code;
using Clock = std::chrono::steady_clock;
using Stream = QuicStreamState;

constexpr uint64_t kControlWindow = 128u << 10;
constexpr uint64_t kConnectionWindow = 16u << 20;
constexpr uint64_t kMostUserStreams = 1'000;

constexpr int64_t kProbeSilenceMs = 50;
constexpr int64_t kAddressCheckMs = 5'000;
constexpr int64_t kMigrationPauseMs = 1'000;

// Both endpoints must outlive the path.
ngtcp2_path path_of(const UdpEndpoint& local, const UdpEndpoint& remote) {
  ngtcp2_path path{};
  path.local.addr = const_cast<sockaddr*>(local.data());
  path.local.addrlen = static_cast<ngtcp2_socklen>(local.size());
  path.remote.addr = const_cast<sockaddr*>(remote.data());
  path.remote.addrlen = static_cast<ngtcp2_socklen>(remote.size());
  return path;
}

UdpEndpoint endpoint_of(const ngtcp2_addr& address) {
  UdpEndpoint endpoint;
  if (address.addrlen > endpoint.capacity()) return endpoint;
  std::memcpy(endpoint.data(), address.addr, address.addrlen);
  endpoint.resize(address.addrlen);
  return endpoint;
}

QuicCid cid_of(const ngtcp2_cid& cid) {
  return QuicCid(cid.data, cid.datalen);
}

}  // namespace

ngtcp2_tstamp quic_now() {
  return static_cast<ngtcp2_tstamp>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count());
}

ngtcp2_duration quic_duration(int64_t ms) {
  return static_cast<ngtcp2_duration>(std::max<int64_t>(ms, 0)) * NGTCP2_MILLISECONDS;
}

QuicConnection::QuicConnection(asio::any_io_executor executor, QuicSettings settings, std::shared_ptr<UdpSocket> socket)
    : executor_(std::move(executor)),
      settings_(std::move(settings)),
      socket_(std::move(socket)),
      timer_(executor_),
      address_timer_(executor_),
      changed_(executor_) {
  ref_.get_conn = [](ngtcp2_crypto_conn_ref* ref) { return static_cast<QuicConnection*>(ref->user_data)->conn_; };
  ref_.user_data = this;
}

QuicConnection::~QuicConnection() {
  if (!error_) streams_.fail_all(Error{ErrorCode::kConnectionClosed, "the link is gone", {}, 0});
  if (conn_ != nullptr) ngtcp2_conn_del(conn_);
}

ngtcp2_callbacks QuicConnection::callbacks(bool server) {
  ngtcp2_callbacks out{};
  if (server) {
    out.recv_client_initial = ngtcp2_crypto_recv_client_initial_cb;
  } else {
    out.client_initial = ngtcp2_crypto_client_initial_cb;
    out.recv_retry = ngtcp2_crypto_recv_retry_cb;
  }
  out.recv_crypto_data = ngtcp2_crypto_recv_crypto_data_cb;
  out.encrypt = ngtcp2_crypto_encrypt_cb;
  out.decrypt = ngtcp2_crypto_decrypt_cb;
  out.hp_mask = ngtcp2_crypto_hp_mask_cb;
  out.update_key = ngtcp2_crypto_update_key_cb;
  out.delete_crypto_aead_ctx = ngtcp2_crypto_delete_crypto_aead_ctx_cb;
  out.delete_crypto_cipher_ctx = ngtcp2_crypto_delete_crypto_cipher_ctx_cb;
  out.get_path_challenge_data = ngtcp2_crypto_get_path_challenge_data_cb;
  out.version_negotiation = ngtcp2_crypto_version_negotiation_cb;
  out.rand = [](uint8_t* data, size_t size, const ngtcp2_rand_ctx*) { (void)quic_random(data, size); };
  out.get_new_connection_id = on_new_cid;
  out.remove_connection_id = on_drop_cid;
  out.stream_open = on_stream_open;
  out.recv_stream_data = on_stream_data;
  out.acked_stream_data_offset = on_acked;
  out.stream_close = on_stream_close;
  out.stream_reset = on_stream_reset;
  out.extend_max_stream_data = on_stream_window;
  out.handshake_completed = [](ngtcp2_conn*, void* user) {
    static_cast<QuicConnection*>(user)->handshake_done_ = true;
    return 0;
  };
  out.extend_max_local_streams_bidi = [](ngtcp2_conn*, uint64_t, void* user) {
    static_cast<QuicConnection*>(user)->changed_.ring();
    return 0;
  };
  out.recv_stateless_reset = [](ngtcp2_conn*, const ngtcp2_pkt_stateless_reset*, void* user) {
    static_cast<QuicConnection*>(user)->forgotten_by_peer_ = true;
    return 0;
  };
  return out;
}

int QuicConnection::on_new_cid(ngtcp2_conn*, ngtcp2_cid* cid, uint8_t* token, size_t size, void* user) {
  auto& self = *static_cast<QuicConnection*>(user);
  cid->datalen = size;
  if (!quic_random(cid->data, size)) return NGTCP2_ERR_CALLBACK_FAILURE;
  const std::string& secret = self.settings_.reset_secret;
  if (ngtcp2_crypto_generate_stateless_reset_token(token, quic_bytes(secret), secret.size(), cid) != 0) {
    return NGTCP2_ERR_CALLBACK_FAILURE;
  }
  self.add_cid(*cid);
  return 0;
}

int QuicConnection::on_drop_cid(ngtcp2_conn*, const ngtcp2_cid* cid, void* user) {
  auto& self = *static_cast<QuicConnection*>(user);
  const QuicCid gone = cid_of(*cid);
  std::erase(self.cids_, gone);
  if (const auto router = self.router_.lock()) router->drop_cid(gone);
  return 0;
}

ngtcp2_settings QuicConnection::quic_settings(int64_t handshake_ms) const {
  ngtcp2_settings out;
  ngtcp2_settings_default(&out);
  out.initial_ts = quic_now();
  out.handshake_timeout = quic_duration(handshake_ms);
  return out;
}

ngtcp2_transport_params QuicConnection::transport_params(bool server) const {
  ngtcp2_transport_params out;
  ngtcp2_transport_params_default(&out);
  out.initial_max_data = kConnectionWindow;
  // Users' streams are the relay's, the control stream is the agent's.
  out.initial_max_stream_data_bidi_local = server ? kQuicReceiveWindow : kControlWindow;
  out.initial_max_stream_data_bidi_remote = server ? kControlWindow : kQuicReceiveWindow;
  out.initial_max_streams_bidi = server ? 1 : kMostUserStreams;
  out.max_idle_timeout = quic_duration(settings_.idle_timeout_ms);
  out.max_udp_payload_size = UdpSocket::kMostBytes;
  out.active_connection_id_limit = 7;
  return out;
}

Result<void> QuicConnection::start_server(std::weak_ptr<QuicRouter> router, const ngtcp2_pkt_hd& header,
                                          const ngtcp2_cid* original, const UdpEndpoint& local, const UdpEndpoint& remote) {
  server_ = true;
  PF_TRY(session_, make_relay_session(*settings_.credentials, settings_.legacy, &ref_));
  remote_ = remote;
  facts_.peer = to_text(remote);
  ngtcp2_cid own{};
  own.datalen = kQuicCidBytes;
  if (!quic_random(own.data, own.datalen)) return fail(ErrorCode::kInternal, "there is no randomness");
  ngtcp2_settings settings = quic_settings(kQuicHandshakeMs);
  ngtcp2_transport_params params = transport_params(true);
  params.original_dcid = header.dcid;
  if (original != nullptr) {
    // The token has shown that the agent receives at its address.
    settings.token = header.token;
    params.original_dcid = *original;
    params.retry_scid = header.dcid;
    params.retry_scid_present = 1;
  }
  const std::string& secret = settings_.reset_secret;
  params.stateless_reset_token_present =
      ngtcp2_crypto_generate_stateless_reset_token(params.stateless_reset_token, quic_bytes(secret), secret.size(), &own) == 0;
  const ngtcp2_path path = path_of(local, remote);
  const ngtcp2_callbacks functions = callbacks(true);
  const int rv =
      ngtcp2_conn_server_new(&conn_, &header.scid, &own, &path, header.version, &functions, &settings, &params, nullptr, this);
  if (rv != 0) {
    conn_ = nullptr;
    return fail(ErrorCode::kInternal, std::string("cannot make a QUIC connection: ") + ngtcp2_strerror(rv));
  }
  ngtcp2_conn_set_tls_native_handle(conn_, session_.get());
  ngtcp2_conn_set_keep_alive_timeout(conn_, quic_duration(settings_.keep_alive_ms));
  router_ = std::move(router);
  add_cid(own);
  add_cid(header.dcid);
  return {};
}

Result<void> QuicConnection::start_client(const UdpEndpoint& remote, int64_t handshake_ms) {
  PF_TRY(session_, make_agent_session(*settings_.credentials, settings_.server_name, settings_.verify, settings_.legacy, &ref_));
  remote_ = remote;
  facts_.peer = to_text(remote);
  ngtcp2_cid own{};
  ngtcp2_cid peer{};
  own.datalen = peer.datalen = kQuicCidBytes;
  if (!quic_random(own.data, own.datalen) || !quic_random(peer.data, peer.datalen)) {
    return fail(ErrorCode::kInternal, "there is no randomness");
  }
  const ngtcp2_settings settings = quic_settings(handshake_ms);
  const ngtcp2_transport_params params = transport_params(false);
  const ngtcp2_path path = path_of(socket_->local(), remote_);
  const ngtcp2_callbacks functions = callbacks(false);
  const int rv =
      ngtcp2_conn_client_new(&conn_, &peer, &own, &path, NGTCP2_PROTO_VER_V1, &functions, &settings, &params, nullptr, this);
  if (rv != 0) {
    conn_ = nullptr;
    return fail(ErrorCode::kInternal, std::string("cannot make a QUIC connection: ") + ngtcp2_strerror(rv));
  }
  ngtcp2_conn_set_tls_native_handle(conn_, session_.get());
  ngtcp2_conn_set_keep_alive_timeout(conn_, quic_duration(settings_.keep_alive_ms));
  listen_on_socket();
  return {};
}

void QuicConnection::listen_on_socket() {
  UdpSocket::Handlers handlers;
  handlers.on_datagram = [weak = weak_from_this()](const UdpEndpoint& local, const UdpEndpoint& remote, const uint8_t* data,
                                                   size_t size) {
    if (const auto self = weak.lock()) self->on_datagram(local, remote, data, size);
  };
  handlers.on_error = [weak = weak_from_this()](const error_code& ec) {
    const auto self = weak.lock();
    // Later on, only QUIC's own timers end a link: such reports can be forged, and a relay that starts anew sends them too.
    if (!self || self->established_) return;
    self->end(Error{ErrorCode::kConnectionClosed, "nobody answers at " + to_text(self->remote_) + ": " + ec.message(), {}, 0},
              {});
  };
  handlers.on_room = [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->schedule_flush();
  };
  socket_->start(std::move(handlers));
}

asio::awaitable<Result<std::shared_ptr<QuicConnection>>> QuicConnection::connect(asio::any_io_executor executor,
                                                                                 QuicSettings settings, UdpEndpoint remote,
                                                                                 int64_t deadline) {
  PF_CO_TRY(auto socket, UdpSocket::connect(executor, remote));
  const auto self = std::make_shared<QuicConnection>(executor, std::move(settings), std::move(socket));
  const int64_t left = time_left(deadline);
  PF_CO_CHECK_OK(self->start_client(remote, left < 0 ? kQuicHandshakeMs : left));
  self->flush();
  while (!self->established_ && !self->error_) {
    if (time_left(deadline) == 0) {
      self->end(Error{ErrorCode::kDeadlineExceeded, "no QUIC handshake with " + to_text(remote) + " in time", {}, 0}, {});
      break;
    }
    co_await self->changed_.wait(deadline);
  }
  if (self->error_) co_return fail(*self->error_);
  co_return self;
}

void QuicConnection::on_datagram(const UdpEndpoint& local, const UdpEndpoint& remote, const uint8_t* data, size_t size) {
  if (error_) return;
  const ngtcp2_path path = path_of(local, remote);
  const int rv = ngtcp2_conn_read_pkt(conn_, &path, nullptr, data, size, quic_now());
  if (rv != 0) return read_failed(rv);
  ++heard_;
  if (probing_ > 0) changed_.ring();
  after_read();
}

void QuicConnection::read_failed(int rv) {
  switch (rv) {
    case NGTCP2_ERR_DRAINING:
    case NGTCP2_ERR_CLOSING:
      return end(peer_error(), {});
    case NGTCP2_ERR_RETRY:
    case NGTCP2_ERR_DROP_CONN:
      return end(Error{ErrorCode::kProtocol, facts_.peer + " began a QUIC connection in a way that cannot go on", {}, 0}, {});
    case NGTCP2_ERR_CRYPTO:
      return close_for(rv, tls_error());
    default:
      return close_for(rv, Error{ErrorCode::kProtocol, facts_.peer + " broke QUIC: " + ngtcp2_strerror(rv), {}, 0});
  }
}

void QuicConnection::after_read() {
  if (handshake_done_ && !established_) {
    establish();
    if (error_) return;
  }
  if (connection_blocked_ && ngtcp2_conn_get_max_data_left(conn_) > 0) {
    connection_blocked_ = false;
    streams_.unblock_all();
  }
  finish_if_idle();
  schedule_flush();
}

void QuicConnection::establish() {
  facts_.carrier = "quic";
  extended_ = knows_quic_alpn(session_);
  if (!extended_ && !settings_.legacy) {
    ngtcp2_conn_set_tls_alert(conn_, GNUTLS_A_NO_APPLICATION_PROTOCOL);
    return close_for(
        NGTCP2_ERR_CRYPTO,
        Error{ErrorCode::kUnsupportedParameter, facts_.peer + " does not know the protocol " + std::string(kQuicAlpn), {}, 0});
  }
  facts_.binding = quic_binding(session_);
  if (facts_.binding.empty()) {
    return close_for(NGTCP2_ERR_INTERNAL,
                     Error{ErrorCode::kInternal, "TLS has no binding for the link to " + facts_.peer, {}, 0});
  }
  if (server_) {
    facts_.peer_certificate = quic_peer_certificate(session_);
    if (facts_.peer_certificate.empty()) {
      return close_for(NGTCP2_ERR_INTERNAL, Error{ErrorCode::kProtocol, facts_.peer + " showed no certificate", {}, 0});
    }
  }
  established_ = true;
  if (server_) {
    if (const auto router = router_.lock()) router->on_established(shared_from_this());
  } else {
    check_address();
  }
  changed_.ring();
}

void QuicConnection::schedule_flush() {
  if (flush_scheduled_ || error_) return;
  flush_scheduled_ = true;
  asio::post(executor_, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    self->flush_scheduled_ = false;
    self->flush();
  });
}

void QuicConnection::flush() {
  if (error_) return;
  if (socket_->congested()) return wait_for_room();
  waits_for_room_ = false;
  const ngtcp2_tstamp ts = quic_now();
  const size_t quantum = std::max(ngtcp2_conn_get_send_quantum(conn_), UdpSocket::kMostBytes);
  ngtcp2_path_storage path;
  ngtcp2_path_storage_zero(&path);
  UdpBatch batch(*socket_);
  bool any_blocked = false;
  for (size_t total = 0; total < quantum && !socket_->congested();) {
    const std::shared_ptr<Stream> stream = streams_.next_ready();
    std::array<SendBuffer::Piece, SendBuffer::kMostPieces> pieces;
    std::array<ngtcp2_vec, SendBuffer::kMostPieces> vectors;
    size_t count = 0;
    size_t offered = 0;
    uint32_t flags = NGTCP2_WRITE_STREAM_FLAG_NONE;
    if (stream) {
      count = stream->out.pending(pieces);
      for (size_t i = 0; i < count; ++i) {
        vectors[i].base = const_cast<uint8_t*>(reinterpret_cast<const uint8_t*>(pieces[i].data));
        vectors[i].len = pieces[i].size;
        offered += pieces[i].size;
      }
      flags = NGTCP2_WRITE_STREAM_FLAG_MORE;
      if (stream->out_ended && offered == stream->out.unsent()) flags |= NGTCP2_WRITE_STREAM_FLAG_FIN;
    }
    ngtcp2_ssize taken = -1;
    const ngtcp2_ssize written = ngtcp2_conn_writev_stream(conn_, &path.path, nullptr, batch.room(), UdpSocket::kMostBytes,
                                                           &taken, flags, stream ? stream->id : -1, vectors.data(), count, ts);
    if (stream && taken >= 0) {
      stream->out.sent(static_cast<size_t>(taken));
      if ((flags & NGTCP2_WRITE_STREAM_FLAG_FIN) != 0 && static_cast<size_t>(taken) == offered) stream->out_end_sent = true;
    }
    if (written == NGTCP2_ERR_WRITE_MORE) continue;
    if (stream && written == NGTCP2_ERR_STREAM_DATA_BLOCKED) {
      streams_.block(stream);
      any_blocked = true;
      continue;
    }
    if (stream && (written == NGTCP2_ERR_STREAM_SHUT_WR || written == NGTCP2_ERR_STREAM_NOT_FOUND)) {
      stream->out_dead = true;
      stream->writable.raise();
      continue;
    }
    if (written < 0) {
      batch.send();
      const int rv = static_cast<int>(written);
      if (rv == NGTCP2_ERR_CLOSING || rv == NGTCP2_ERR_DRAINING) return end(peer_error(), {});
      return close_for(rv, Error{ErrorCode::kInternal, "QUIC cannot send to " + facts_.peer + ": " + ngtcp2_strerror(rv), {}, 0});
    }
    if (written == 0) break;
    total += static_cast<size_t>(written);
    const UdpEndpoint local = endpoint_of(path.path.local);
    // What is left over for an agent's socket that is no more counts as lost.
    if (server_ || local == socket_->local()) batch.add(local, endpoint_of(path.path.remote), static_cast<size_t>(written));
  }
  batch.send();
  ngtcp2_conn_update_pkt_tx_time(conn_, ts);
  if (any_blocked && ngtcp2_conn_get_max_data_left(conn_) == 0) connection_blocked_ = true;
  arm();
  if (socket_->congested()) wait_for_room();
  if (batch.error() && !server_ && Clock::now() - migrated_ > std::chrono::milliseconds(kMigrationPauseMs)) migrate();
}

// The socket is the listener's; an agent's tells its one connection anyway.
void QuicConnection::wait_for_room() {
  if (std::exchange(waits_for_room_, true)) return;
  if (const auto router = router_.lock()) router->wait_for_room(shared_from_this());
}

void QuicConnection::arm() {
  const ngtcp2_tstamp expiry = ngtcp2_conn_get_expiry(conn_);
  if (expiry >= static_cast<ngtcp2_tstamp>(std::numeric_limits<int64_t>::max())) return;
  const Clock::time_point at{std::chrono::nanoseconds(static_cast<int64_t>(expiry))};
  // A timer that stands too early is cheap: it finds nothing to do and is set anew.
  if (at >= armed_) return;
  armed_ = at;
  timer_.expires_at(at);
  timer_.async_wait([weak = weak_from_this()](const error_code& ec) {
    const auto self = weak.lock();
    if (self && !ec) self->on_timer();
  });
}

void QuicConnection::on_timer() {
  if (error_) return;
  armed_ = Clock::time_point::max();
  const int rv = ngtcp2_conn_handle_expiry(conn_, quic_now());
  if (rv == NGTCP2_ERR_IDLE_CLOSE) {
    return end(Error{ErrorCode::kConnectionClosed, facts_.peer + " has not been heard of for too long", {}, 0}, {});
  }
  if (rv == NGTCP2_ERR_HANDSHAKE_TIMEOUT) {
    return end(Error{ErrorCode::kDeadlineExceeded, "no QUIC handshake with " + to_text(remote_) + " in time", {}, 0}, {});
  }
  if (rv != 0) {
    return close_for(rv, Error{ErrorCode::kConnectionClosed, "QUIC lost " + facts_.peer + ": " + ngtcp2_strerror(rv), {}, 0});
  }
  flush();
  finish_if_idle();
}

std::string QuicConnection::write_close(const ngtcp2_connection_close_error& reason) {
  if (conn_ == nullptr) return {};
  std::array<uint8_t, UdpSocket::kMostBytes> packet;
  ngtcp2_path_storage path;
  ngtcp2_path_storage_zero(&path);
  const ngtcp2_ssize written =
      ngtcp2_conn_write_connection_close(conn_, &path.path, nullptr, packet.data(), packet.size(), &reason, quic_now());
  if (written <= 0) return {};
  socket_->send(endpoint_of(path.path.local), endpoint_of(path.path.remote), packet.data(), static_cast<size_t>(written));
  return std::string(reinterpret_cast<const char*>(packet.data()), static_cast<size_t>(written));
}

asio::awaitable<bool> QuicConnection::probe(int64_t timeout_ms) {
  const auto self = shared_from_this();
  const int64_t deadline = deadline_after(timeout_ms);
  if (self->error_) co_return false;
  const uint64_t before = self->heard_;
  // Keep-alive that is due at once: a PING, unless something is on its way that has to be acknowledged as well.
  ngtcp2_conn_set_keep_alive_timeout(self->conn_, quic_duration(kProbeSilenceMs));
  ++self->probing_;
  self->flush();
  while (!self->error_ && self->heard_ == before && time_left(deadline) != 0) co_await self->changed_.wait(deadline);
  --self->probing_;
  if (self->error_) co_return false;
  ngtcp2_conn_set_keep_alive_timeout(self->conn_, quic_duration(self->settings_.keep_alive_ms));
  co_return self->heard_ != before;
}

void QuicConnection::migrate() {
  if (error_ || server_) return;
  migrated_ = Clock::now();
  auto fresh = UdpSocket::connect(executor_, remote_);
  if (!fresh) return;
  const ngtcp2_path path = path_of((*fresh)->local(), remote_);
  const int rv = ngtcp2_conn_initiate_immediate_migration(conn_, &path, quic_now());
  if (rv == NGTCP2_ERR_CONN_ID_BLOCKED) {
    // The relay has given us no other id; then it looks to it as if a NAT had changed our address.
    ngtcp2_conn_set_local_addr(conn_, &path.local);
  } else if (rv != 0) {
    return;
  }
  socket_->close();
  socket_ = std::move(*fresh);
  listen_on_socket();
  schedule_flush();
}

// When a machine gets another address, its old socket goes on without an error, and nothing arrives any more.
void QuicConnection::check_address() {
  if (error_) return;
  const auto address = UdpSocket::source_address(remote_);
  if (address && *address != socket_->local().address()) migrate();
  address_timer_.expires_after(std::chrono::milliseconds(kAddressCheckMs));
  address_timer_.async_wait([weak = weak_from_this()](const error_code& ec) {
    const auto self = weak.lock();
    if (self && !ec) self->check_address();
  });
}

void QuicConnection::add_cid(const ngtcp2_cid& cid) {
  cids_.push_back(cid_of(cid));
  if (const auto router = router_.lock()) router->add_cid(cids_.back(), shared_from_this());
}

}  // namespace pocketfleet::tunnel
