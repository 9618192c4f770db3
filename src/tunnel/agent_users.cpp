// What becomes of the streams that a relay opens: TLS is ended here, and the bytes go on to a local server.
#include "base/log.h"
#include "net/prefixed_stream.h"
#include "net/sockets.h"
#include "net/splice.h"
#include "tunnel/agent_impl.h"
#include "tunnel/proxy_header.h"

namespace pocketfleet::tunnel {

namespace {

constexpr int64_t kLocalMs = 5'000;
constexpr int64_t kFarewellMs = 1'000;

// The local server is expected to speak HTTP, so a client can be told that it is away.
constexpr std::string_view kAway =
    "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 5\r\nconnection: close\r\n"
    "content-length: 141\r\n\r\n"
    "{\"error\":{\"message\":\"the server behind this address does not answer; try again in a few seconds\","
    "\"type\":\"server_error\",\"code\":\"unavailable\"}}";

struct Caller {
  Caller() = default;
  ProxyAddress from;
  std::string read;  // of the user's own bytes
};

// What a relay says of the user before the user's first byte, if it says anything. Users themselves cannot say it: the relay
// passes on only what begins as TLS does.
asio::awaitable<Result<Caller>> read_caller(net::Stream& stream, int64_t timeout_ms) {
  Caller caller;
  char buffer[kMostProxyHeaderBytes];
  for (;;) {
    PF_CO_TRY(const size_t count, co_await stream.read_some(buffer, sizeof buffer, timeout_ms));
    if (count == 0) co_return fail(ErrorCode::kConnectionClosed, "the user has gone");
    caller.read.append(buffer, count);
    if (!begins_proxy_header(caller.read.front())) co_return caller;
    PF_CO_TRY(const ProxyHeader header, read_proxy_header(caller.read));
    if (header.size == 0) continue;
    caller.from = header.from;
    caller.read.erase(0, header.size);
    co_return caller;
  }
}

asio::awaitable<Result<std::unique_ptr<net::Stream>>> connect_target(std::string target) {
  if (target.starts_with("unix:")) co_return co_await net::connect_unix(target.substr(5), kLocalMs);
  const size_t colon = target.rfind(':');
  co_return co_await net::connect_tcp(target.substr(0, colon), static_cast<uint16_t>(std::stoi(target.substr(colon + 1))),
                                      kLocalMs);
}

}  // namespace

asio::awaitable<void> Tunnel::Impl::serve_user(std::unique_ptr<net::Stream> stream, std::shared_ptr<net::TlsContext> tls) {
  const auto self = shared_from_this();
  ++users;
  struct Leave {
    size_t& users;
    ~Leave() { --users; }
  } const leave{users};
  auto caller = co_await read_caller(*stream, options.handshake_timeout_ms);
  if (!caller) {
    log_debug("user_gone", {{"reason", caller.error().message}});
    co_return;
  }
  stream = net::make_prefixed_stream(std::move(stream), std::move(caller->read));
  auto user = co_await net::TlsContext::accept(tls, std::move(stream), options.handshake_timeout_ms);
  if (!user) {
    log_debug("user_tls_failed", {{"reason", user.error().message}});
    co_return;
  }
  {
    const std::lock_guard lock(status_mutex);
    ++status.users;
  }
  auto local = co_await connect_target(options.target);
  if (!local) {
    log_warn("target_away", {{"target", options.target}, {"reason", local.error().message}});
    const auto told = co_await (*user)->write(kAway, kFarewellMs);
    if (told) co_await (*user)->shutdown(kFarewellMs);
    co_return;
  }
  if (options.send_proxy) {
    const std::string header = make_proxy_header(caller->from, {});
    const auto told = co_await (*local)->write(header, kLocalMs);
    if (!told) co_return;
  }
  net::SpliceOptions splice;
  splice.idle_ms = options.user_idle_ms;
  net::SpliceCount count;
  const auto done = co_await net::splice(**user, **local, splice, count);
  if (!done) log_debug("user_cut", {{"reason", done.error().message}});
}

asio::awaitable<void> Tunnel::Impl::serve_challenge(std::unique_ptr<net::Stream> stream, std::shared_ptr<net::TlsContext> tls) {
  const auto self = shared_from_this();
  auto authority = co_await net::TlsContext::accept(tls, std::move(stream), options.handshake_timeout_ms);
  // The handshake is the answer (RFC 8737, section 3).
  if (authority) co_await (*authority)->shutdown(kFarewellMs);
}

}  // namespace pocketfleet::tunnel
