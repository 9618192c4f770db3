// One QUIC connection over ngtcp2, either end: packets in and out, timers, streams, the agent's changes of address. The listener
// of a relay is behind QuicRouter. ngtcp2 calls back while it reads a packet; what is to be done then waits until it has
// returned. For quic_link.cpp alone. On one executor; hold it in a shared_ptr. It ends with an Error that everybody gets.
#pragma once

#include <ngtcp2/ngtcp2.h>
#include <ngtcp2/ngtcp2_crypto.h>

#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tunnel/quic_exchange.h"
#include "tunnel/quic_routes.h"
#include "tunnel/quic_socket.h"
#include "tunnel/quic_streams.h"
#include "tunnel/quic_tls.h"

namespace pocketfleet::tunnel {

inline constexpr size_t kQuicCidBytes = 18;  // of ids that the relay gives
inline constexpr int64_t kQuicHandshakeMs = 10'000;

ngtcp2_tstamp quic_now();
ngtcp2_duration quic_duration(int64_t ms);
inline const uint8_t* quic_bytes(std::string_view text) {
  return reinterpret_cast<const uint8_t*>(text.data());
}

class QuicConnection;

// What the listener does for its connections.
class QuicRouter {
 public:
  virtual void add_cid(const QuicCid& cid, const std::shared_ptr<QuicConnection>& connection) = 0;
  virtual void drop_cid(const QuicCid& cid) = 0;
  virtual void on_established(const std::shared_ptr<QuicConnection>& connection) = 0;
  // `last_packet` answers what still comes; may be empty.
  virtual void on_ended(QuicConnection& connection, std::string last_packet) = 0;
  virtual void wait_for_room(const std::shared_ptr<QuicConnection>& connection) = 0;

 protected:
  ~QuicRouter() = default;
};

struct QuicSettings {
  QuicSettings() = default;
  std::shared_ptr<QuicCredentials> credentials;
  std::string reset_secret;
  std::string server_name;  // agents
  bool verify = true;       // agents
  bool legacy = false;      // the agent offers no ALPN; the relay takes agents that offer none
  int64_t idle_timeout_ms = 30'000;
  int64_t keep_alive_ms = 10'000;
};

class QuicConnection final : public QuicCarrier, public QuicStreamHost, public std::enable_shared_from_this<QuicConnection> {
 public:
  QuicConnection(asio::any_io_executor executor, QuicSettings settings, std::shared_ptr<UdpSocket> socket);
  ~QuicConnection() override;
  QuicConnection(const QuicConnection&) = delete;
  QuicConnection& operator=(const QuicConnection&) = delete;

  // The agent's end; returns once the handshake is done.
  static asio::awaitable<Result<std::shared_ptr<QuicConnection>>> connect(asio::any_io_executor executor, QuicSettings settings,
                                                                          UdpEndpoint remote, int64_t deadline);
  // The relay's end, for an Initial packet that the caller then passes on. `original`: the id before a Retry.
  Result<void> start_server(std::weak_ptr<QuicRouter> router, const ngtcp2_pkt_hd& header, const ngtcp2_cid* original,
                            const UdpEndpoint& local, const UdpEndpoint& remote);

  void on_datagram(const UdpEndpoint& local, const UdpEndpoint& remote, const uint8_t* data, size_t size);
  void schedule_flush();
  bool established() const { return established_; }
  const std::vector<QuicCid>& cids() const { return cids_; }

  // QuicCarrier
  const LinkFacts& facts() const override { return facts_; }
  asio::any_io_executor executor() const override { return executor_; }
  bool extended() const override { return extended_; }
  const std::optional<Error>& error() const override { return error_; }
  asio::awaitable<Result<std::unique_ptr<net::Stream>>> open_stream(int64_t timeout_ms) override;
  asio::awaitable<Result<IncomingStream>> next_stream(int64_t timeout_ms) override;
  void mark_arrivals(StreamKind kind) override { arriving_ = kind; }
  size_t open_streams() const override { return user_streams_; }
  asio::awaitable<bool> probe(int64_t timeout_ms) override;
  void end_with_last_stream() override;
  void close(const std::string& reason, bool refused) override;
  asio::awaitable<Error> wait_ended() override;
  void migrate() override;

  // QuicStreamHost
  void on_written(QuicStreamState& stream) override;
  void on_read(QuicStreamState& stream, size_t bytes) override;
  void on_let_go(QuicStreamState& stream) override;

  std::string source;  // for the listener's limits

 private:
  static ngtcp2_callbacks callbacks(bool server);
  static int on_new_cid(ngtcp2_conn* conn, ngtcp2_cid* cid, uint8_t* token, size_t size, void* user);
  static int on_drop_cid(ngtcp2_conn* conn, const ngtcp2_cid* cid, void* user);
  static int on_stream_open(ngtcp2_conn* conn, int64_t id, void* user);
  static int on_stream_data(ngtcp2_conn* conn, uint32_t flags, int64_t id, uint64_t offset, const uint8_t* data, size_t size,
                            void* user, void* stream_user);
  static int on_acked(ngtcp2_conn* conn, int64_t id, uint64_t offset, uint64_t size, void* user, void* stream_user);
  static int on_stream_close(ngtcp2_conn* conn, uint32_t flags, int64_t id, uint64_t code, void* user, void* stream_user);
  static int on_stream_reset(ngtcp2_conn* conn, int64_t id, uint64_t size, uint64_t code, void* user, void* stream_user);
  static int on_stream_window(ngtcp2_conn* conn, int64_t id, uint64_t most, void* user, void* stream_user);

  Result<void> start_client(const UdpEndpoint& remote, int64_t handshake_ms);
  ngtcp2_settings quic_settings(int64_t handshake_ms) const;
  ngtcp2_transport_params transport_params(bool server) const;
  void listen_on_socket();

  void flush();
  void wait_for_room();
  void arm();
  void on_timer();
  void read_failed(int rv);
  void after_read();
  void establish();
  void finish_if_idle();
  void check_address();

  // Tells the peer, if it can be told. Returns what was sent.
  std::string write_close(const ngtcp2_connection_close_error& reason);
  void close_for(int rv, Error error);
  void end(Error error, std::string last_packet);
  Error peer_error();
  Error tls_error();

  std::shared_ptr<QuicStreamState> add_stream(int64_t id);
  void forget(int64_t id);
  bool grant_connection();
  void add_cid(const ngtcp2_cid& cid);

  asio::any_io_executor executor_;
  QuicSettings settings_;
  std::shared_ptr<UdpSocket> socket_;
  std::weak_ptr<QuicRouter> router_;
  bool server_ = false;
  UdpEndpoint remote_;
  ngtcp2_crypto_conn_ref ref_{};
  QuicSession session_;
  ngtcp2_conn* conn_ = nullptr;
  std::vector<QuicCid> cids_;

  asio::steady_timer timer_;
  std::chrono::steady_clock::time_point armed_ = std::chrono::steady_clock::time_point::max();
  asio::steady_timer address_timer_;
  std::chrono::steady_clock::time_point migrated_{};
  bool flush_scheduled_ = false;
  bool waits_for_room_ = false;

  bool handshake_done_ = false;
  bool established_ = false;
  bool extended_ = false;
  bool forgotten_by_peer_ = false;
  bool ending_with_last_ = false;
  std::optional<Error> error_;
  LinkFacts facts_;
  uint64_t heard_ = 0;
  int probing_ = 0;

  QuicStreamTable streams_;
  bool connection_blocked_ = false;  // by the window that the peer gives to all streams together
  std::deque<IncomingStream> arrivals_;
  StreamKind arriving_ = StreamKind::kUser;
  size_t user_streams_ = 0;
  size_t unread_ = 0;
  uint64_t owed_ = 0;  // received, and not yet granted anew to the connection

  Bell changed_;  // arrivals, allowed streams, signs of life, the handshake, the end
};

}  // namespace pocketfleet::tunnel
