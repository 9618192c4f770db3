#include "tunnel/quic_link.h"

#include <algorithm>
#include <array>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <chrono>
#include <unordered_set>
#include <utility>
#include <vector>

#include "crypto/digest.h"
#include "crypto/random.h"
#include "tunnel/quic_connection.h"

namespace pocketfleet::tunnel {

namespace {

using boost::system::error_code;
using Clock = std::chrono::steady_clock;

// More unfinished handshakes than this, and newcomers must first show that they receive at their address.
constexpr size_t kRetryAbove = 64;
constexpr size_t kMostUnfinished = 1'000;
constexpr int64_t kTickMs = 1'000;
constexpr auto kRemainsTime = std::chrono::seconds(3);  // a closed connection answers for so long
constexpr int kResetsPerTick = 100;
constexpr size_t kMostResetBytes = 43;

std::array<uint64_t, 6> hash_keys() {
  std::array<uint64_t, 6> words{};
  quic_random(words.data(), sizeof words);
  return words;
}

// Addresses that one party is likely to have many of count as one.
std::string source_of(const UdpEndpoint& remote) {
  const asio::ip::address address = remote.address();
  if (address.is_v4()) return address.to_string();
  const asio::ip::address_v6 v6 = address.to_v6();
  if (v6.is_v4_mapped()) return asio::ip::make_address_v4(asio::ip::v4_mapped, v6).to_string();
  const auto bytes = v6.to_bytes();
  return std::string(reinterpret_cast<const char*>(bytes.data()), 8);
}

}  // namespace

bool quic_available() {
  return true;
}

struct QuicListener::Impl final : QuicRouter, std::enable_shared_from_this<QuicListener::Impl> {
  Impl(asio::any_io_executor the_executor, QuicServerOptions the_options, OnLink the_on_link,
       std::shared_ptr<UdpSocket> the_socket)
      : executor(std::move(the_executor)),
        options(std::move(the_options)),
        on_link(std::move(the_on_link)),
        socket(std::move(the_socket)),
        tick_timer(executor) {}

  Result<void> start();
  void close();
  void on_datagram(const UdpEndpoint& local, const UdpEndpoint& remote, const uint8_t* data, size_t size);
  void accept(const UdpEndpoint& local, const UdpEndpoint& remote, const uint8_t* data, size_t size);
  void tick();

  void answer_version(const ngtcp2_version_cid& ids, const UdpEndpoint& local, const UdpEndpoint& remote);
  void answer_retry(const ngtcp2_pkt_hd& header, const UdpEndpoint& local, const UdpEndpoint& remote);
  void answer_refusal(const ngtcp2_pkt_hd& header, uint64_t code, const UdpEndpoint& local, const UdpEndpoint& remote);
  void answer_reset(const ngtcp2_version_cid& ids, size_t size, const UdpEndpoint& local, const UdpEndpoint& remote);
  void answer(const uint8_t* packet, ngtcp2_ssize size, const UdpEndpoint& local, const UdpEndpoint& remote) {
    if (size > 0) socket->send(local, remote, packet, static_cast<size_t>(size));
  }

  void add_cid(const QuicCid& cid, const std::shared_ptr<QuicConnection>& connection) override { routes.add(cid, connection); }
  void drop_cid(const QuicCid& cid) override { routes.remove(cid); }
  void on_established(const std::shared_ptr<QuicConnection>& connection) override;
  void on_ended(QuicConnection& connection, std::string last_packet) override;
  void wait_for_room(const std::shared_ptr<QuicConnection>& connection) override { wanting_room.push_back(connection); }

  asio::any_io_executor executor;
  QuicServerOptions options;
  OnLink on_link;
  std::shared_ptr<UdpSocket> socket;
  std::shared_ptr<QuicCredentials> credentials;
  std::string reset_secret;
  std::string retry_secret;
  asio::steady_timer tick_timer;
  bool closed = false;

  QuicRoutes<QuicConnection> routes{hash_keys()};
  std::unordered_set<std::shared_ptr<QuicConnection>> connections;
  size_t unfinished = 0;  // handshakes
  std::vector<std::weak_ptr<QuicConnection>> wanting_room;
  int resets_left = kResetsPerTick;
};

Result<void> QuicListener::Impl::start() {
  PF_TRY(credentials, QuicCredentials::make(options.certificate_chain_pem, options.private_key_pem));
  PF_TRY(retry_secret, random_bytes(32));
  // The same after a restart, so that agents learn at once that their links are gone.
  const Sha256 secret = sha256("pocketfleet: stateless reset of QUIC\n" + options.private_key_pem);
  reset_secret.assign(secret.begin(), secret.end());
  UdpSocket::Handlers handlers;
  handlers.on_datagram = [weak = weak_from_this()](const UdpEndpoint& local, const UdpEndpoint& remote, const uint8_t* data,
                                                   size_t size) {
    if (const auto self = weak.lock()) self->on_datagram(local, remote, data, size);
  };
  handlers.on_room = [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    for (const auto& waiting : std::exchange(self->wanting_room, {})) {
      if (const auto connection = waiting.lock()) connection->schedule_flush();
    }
  };
  socket->start(std::move(handlers));
  tick();
  return {};
}

void QuicListener::Impl::close() {
  if (closed) return;
  closed = true;
  const auto all = connections;
  for (const auto& connection : all) connection->close("the relay stops", false);
  tick_timer.cancel();
  socket->close();
  routes.clear();
}

void QuicListener::Impl::tick() {
  if (closed) return;
  resets_left = kResetsPerTick;
  routes.expire(Clock::now());
  tick_timer.expires_after(std::chrono::milliseconds(kTickMs));
  tick_timer.async_wait([weak = weak_from_this()](const error_code& ec) {
    const auto self = weak.lock();
    if (self && !ec) self->tick();
  });
}

void QuicListener::Impl::on_datagram(const UdpEndpoint& local, const UdpEndpoint& remote, const uint8_t* data, size_t size) {
  ngtcp2_version_cid ids{};
  const int rv = ngtcp2_pkt_decode_version_cid(&ids, data, size, kQuicCidBytes);
  const bool is_long = size > 0 && (data[0] & 0x80) != 0;
  if (rv != 0 && rv != NGTCP2_ERR_VERSION_NEGOTIATION) return;
  if (is_long && ids.version != NGTCP2_PROTO_VER_V1) {
    // Version 0 is such an answer itself. Answers are shorter than what they answer, so that nobody can be flooded with them.
    if (ids.version != 0 && size >= NGTCP2_MAX_UDP_PAYLOAD_SIZE) answer_version(ids, local, remote);
    return;
  }
  if (ids.dcidlen > NGTCP2_MAX_CIDLEN) return;
  const QuicCid cid(ids.dcid, ids.dcidlen);
  if (const auto connection = routes.find(cid)) return connection->on_datagram(local, remote, data, size);
  bool known = false;
  const std::string last_word = routes.last_word(cid, known);
  if (!known) return is_long ? accept(local, remote, data, size) : answer_reset(ids, size, local, remote);
  answer(quic_bytes(last_word), static_cast<ngtcp2_ssize>(last_word.size()), local, remote);
}

void QuicListener::Impl::accept(const UdpEndpoint& local, const UdpEndpoint& remote, const uint8_t* data, size_t size) {
  ngtcp2_pkt_hd header{};
  if (ngtcp2_accept(&header, data, size) != 0) return;
  ngtcp2_cid original{};
  bool proven = false;
  if (header.token.len > 0 && header.token.base[0] == NGTCP2_CRYPTO_TOKEN_MAGIC_RETRY) {
    if (ngtcp2_crypto_verify_retry_token(&original, header.token.base, header.token.len, quic_bytes(retry_secret),
                                         retry_secret.size(), header.version, remote.data(),
                                         static_cast<ngtcp2_socklen>(remote.size()), &header.dcid,
                                         quic_duration(kQuicHandshakeMs), quic_now()) != 0) {
      return answer_refusal(header, NGTCP2_INVALID_TOKEN, local, remote);
    }
    proven = true;
  } else if (unfinished >= kRetryAbove) {
    return answer_retry(header, local, remote);
  }
  std::string source = source_of(remote);
  const bool too_many = options.most_connections_per_ip > 0 && routes.count_of(source) >= options.most_connections_per_ip;
  if (too_many || connections.size() >= options.most_connections || unfinished >= kMostUnfinished) {
    return answer_refusal(header, NGTCP2_CONNECTION_REFUSED, local, remote);
  }
  QuicSettings settings;
  settings.credentials = credentials;
  settings.reset_secret = reset_secret;
  settings.legacy = options.accept_legacy;
  settings.idle_timeout_ms = options.idle_timeout_ms;
  settings.keep_alive_ms = options.keep_alive_ms;
  const auto connection = std::make_shared<QuicConnection>(executor, std::move(settings), socket);
  const std::shared_ptr<QuicRouter> router = shared_from_this();
  if (!connection->start_server(router, header, proven ? &original : nullptr, local, remote)) return;
  connection->source = std::move(source);
  routes.count_in(connection->source);
  ++unfinished;
  connections.insert(connection);
  connection->on_datagram(local, remote, data, size);
}

void QuicListener::Impl::answer_version(const ngtcp2_version_cid& ids, const UdpEndpoint& local, const UdpEndpoint& remote) {
  // Ids of versions to come may have up to 255 bytes each.
  std::array<uint8_t, 1'200> packet;
  const uint32_t versions[] = {NGTCP2_PROTO_VER_V1};
  uint8_t noise = 0;
  quic_random(&noise, 1);
  answer(packet.data(),
         ngtcp2_pkt_write_version_negotiation(packet.data(), packet.size(), noise, ids.scid, ids.scidlen, ids.dcid, ids.dcidlen,
                                              versions, 1),
         local, remote);
}

void QuicListener::Impl::answer_retry(const ngtcp2_pkt_hd& header, const UdpEndpoint& local, const UdpEndpoint& remote) {
  ngtcp2_cid own{};
  own.datalen = kQuicCidBytes;
  if (!quic_random(own.data, own.datalen)) return;
  std::array<uint8_t, NGTCP2_CRYPTO_MAX_RETRY_TOKENLEN> token;
  const ngtcp2_ssize size = ngtcp2_crypto_generate_retry_token(
      token.data(), quic_bytes(retry_secret), retry_secret.size(), header.version, remote.data(),
      static_cast<ngtcp2_socklen>(remote.size()), &own, &header.dcid, quic_now());
  if (size < 0) return;
  std::array<uint8_t, UdpSocket::kMostBytes> packet;
  answer(packet.data(),
         ngtcp2_crypto_write_retry(packet.data(), packet.size(), header.version, &header.scid, &own, &header.dcid, token.data(),
                                   static_cast<size_t>(size)),
         local, remote);
}

void QuicListener::Impl::answer_refusal(const ngtcp2_pkt_hd& header, uint64_t code, const UdpEndpoint& local,
                                        const UdpEndpoint& remote) {
  std::array<uint8_t, UdpSocket::kMostBytes> packet;
  answer(packet.data(),
         ngtcp2_crypto_write_connection_close(packet.data(), packet.size(), header.version, &header.scid, &header.dcid, code,
                                              nullptr, 0),
         local, remote);
}

void QuicListener::Impl::answer_reset(const ngtcp2_version_cid& ids, size_t size, const UdpEndpoint& local,
                                      const UdpEndpoint& remote) {
  // Shorter than what it answers: two ends that have both forgotten must not go on for ever.
  const size_t total = std::min(size - 1, kMostResetBytes);
  if (resets_left <= 0 || total < NGTCP2_STATELESS_RESET_TOKENLEN + NGTCP2_MIN_STATELESS_RESET_RANDLEN) return;
  --resets_left;
  ngtcp2_cid cid{};
  ngtcp2_cid_init(&cid, ids.dcid, ids.dcidlen);
  std::array<uint8_t, NGTCP2_STATELESS_RESET_TOKENLEN> token;
  std::array<uint8_t, kMostResetBytes> noise;
  if (ngtcp2_crypto_generate_stateless_reset_token(token.data(), quic_bytes(reset_secret), reset_secret.size(), &cid) != 0 ||
      !quic_random(noise.data(), noise.size())) {
    return;
  }
  std::array<uint8_t, UdpSocket::kMostBytes> packet;
  answer(packet.data(),
         ngtcp2_pkt_write_stateless_reset(packet.data(), packet.size(), token.data(), noise.data(), total - token.size()), local,
         remote);
}

void QuicListener::Impl::on_established(const std::shared_ptr<QuicConnection>& connection) {
  --unfinished;
  // Not from within QUIC: whoever gets the link may use it at once.
  asio::post(executor, [weak = weak_from_this(), link = make_quic_relay_link(connection)] {
    const auto self = weak.lock();
    if (self && !self->closed && self->on_link) self->on_link(link);
  });
}

void QuicListener::Impl::on_ended(QuicConnection& connection, std::string last_packet) {
  if (!connection.established()) --unfinished;
  routes.count_out(connection.source);
  routes.close(connection.cids(), closed ? std::string() : std::move(last_packet), Clock::now() + kRemainsTime);
  // Last: this may have been what kept it.
  connections.erase(connection.shared_from_this());
}

Result<std::shared_ptr<QuicListener>> QuicListener::open(asio::any_io_executor executor, const std::string& host, uint16_t port,
                                                         QuicServerOptions options, OnLink on_link) {
  PF_TRY(auto socket, UdpSocket::bind(executor, host, port));
  auto impl = std::make_shared<Impl>(std::move(executor), std::move(options), std::move(on_link), std::move(socket));
  PF_CHECK_OK(impl->start());
  return std::make_shared<QuicListener>(std::move(impl));
}

QuicListener::QuicListener(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

QuicListener::~QuicListener() {
  close();
}

uint16_t QuicListener::port() const {
  return impl_->socket->local().port();
}

size_t QuicListener::connections() const {
  return impl_->connections.size();
}

Result<void> QuicListener::set_certificate(const std::string& certificate_chain_pem, const std::string& private_key_pem) {
  PF_TRY(impl_->credentials, QuicCredentials::make(certificate_chain_pem, private_key_pem));
  return {};
}

void QuicListener::close() {
  impl_->close();
}

asio::awaitable<Result<std::shared_ptr<AgentLink>>> dial_quic(std::string host, uint16_t port, std::string server_name,
                                                              QuicDialOptions options, int64_t timeout_ms) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  const int64_t deadline = deadline_after(timeout_ms);
  PF_CO_TRY(auto credentials, QuicCredentials::make(options.certificate_chain_pem, options.private_key_pem));
  if (options.verify) PF_CO_CHECK_OK(credentials->trust(options.trusted_file));
  PF_CO_TRY(std::string reset_secret, random_bytes(32));
  PF_CO_TRY(const std::vector<UdpEndpoint> addresses, co_await resolve_udp(host, port, deadline));
  QuicSettings settings;
  settings.credentials = std::move(credentials);
  settings.reset_secret = std::move(reset_secret);
  settings.server_name = server_name.empty() ? host : server_name;
  settings.verify = options.verify;
  settings.legacy = options.legacy;
  settings.idle_timeout_ms = options.idle_timeout_ms;
  settings.keep_alive_ms = options.keep_alive_ms;
  Error last{ErrorCode::kUnavailable, "no address is known for the host \"" + host + "\"", {}, 0};
  for (size_t i = 0; i < addresses.size(); ++i) {
    // Each address gets its share of the time that is left, the last one all of it.
    const int64_t left = time_left(deadline);
    const int64_t until =
        left < 0 ? deadline_after(kQuicHandshakeMs) : deadline_after(left / static_cast<int64_t>(addresses.size() - i));
    QuicSettings mine = settings;
    auto connection = co_await QuicConnection::connect(executor, std::move(mine), addresses[i], until);
    if (connection) co_return make_quic_agent_link(std::move(*connection));
    last = std::move(connection).error();
    // That is what the relay says, and not the way to it.
    if (last.code == ErrorCode::kUnsupportedParameter || last.code == ErrorCode::kPermissionDenied) break;
  }
  co_return fail(std::move(last));
}

}  // namespace pocketfleet::tunnel
