// From a user's connection to a stream in the tunnel.
#include <unistd.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>

#include "base/clock.h"
#include "base/log.h"
#include "net/prefixed_stream.h"
#include "net/sockets.h"
#include "net/splice.h"
#include "relay/relay_impl.h"
#include "tunnel/client_hello.h"
#include "tunnel/proxy_header.h"

namespace pocketfleet::relay {

namespace {

using boost::system::error_code;
using tcp = asio::ip::tcp;
using tunnel::ClientHelloReader;

constexpr std::string_view kAcmeProtocol = "acme-tls/1";
constexpr uint8_t kInternalError = 80;  // TLS alerts (RFC 8446, 6.2)
constexpr uint8_t kUnrecognizedName = 112;

// Counts a user from its first byte to its last, wherever its coroutines run.
class Ticket {
 public:
  Ticket(std::shared_ptr<Relay::Impl> relay, std::string address, std::string peer)
      : relay_(std::move(relay)), address_(std::move(address)), peer_(std::move(peer)) {}
  ~Ticket() {
    relay_->user_sources.release(address_);
    relay_->users.fetch_sub(1);
    relay_->metrics.user(outcome_);
    if (outcome_ != "carried") log_debug("user_refused", {{"peer", peer_}, {"name", name_}, {"reason", outcome_}});
  }
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;

  Relay::Impl& relay() const { return *relay_; }
  const std::string& peer() const { return peer_; }
  const std::string& name() const { return name_; }
  int64_t begun_ms() const { return begun_ms_; }
  void set_name(std::string name) { name_ = std::move(name); }
  void set_outcome(std::string_view outcome) { outcome_ = outcome; }

 private:
  std::shared_ptr<Relay::Impl> relay_;
  std::string address_, peer_, name_;
  std::string_view outcome_ = "closed early";  // always a literal
  int64_t begun_ms_ = now_ms();
};

// A socket between two event loops.
class LooseSocket {
 public:
  explicit LooseSocket(int fd) : fd_(fd) {}
  LooseSocket(LooseSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  LooseSocket(const LooseSocket&) = delete;
  LooseSocket& operator=(const LooseSocket&) = delete;
  LooseSocket& operator=(LooseSocket&&) = delete;
  ~LooseSocket() {
    if (fd_ >= 0) ::close(fd_);
  }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

void say_alert(tcp::socket& socket, uint8_t alert) {
  if (alert == 0) return;
  const std::string record = tunnel::make_alert_record(alert);
  error_code ignored;
  // Seven bytes fit the empty buffer of a socket.
  socket.write_some(asio::buffer(record), ignored);
  socket.shutdown(tcp::socket::shutdown_send, ignored);
}

// A user's place on a link, counted as long as it is held.
struct Carried {
  Carried(std::shared_ptr<Member> the_member, tunnel::StreamKind the_kind) : member(std::move(the_member)), kind(the_kind) {}
  ~Carried() {
    if (kind == tunnel::StreamKind::kUser) --member->open;
  }
  Carried(const Carried&) = delete;
  Carried& operator=(const Carried&) = delete;
  const std::shared_ptr<Member> member;
  const tunnel::StreamKind kind;
};

// On the executor of the member's link.
asio::awaitable<void> carry(std::unique_ptr<Ticket> ticket, std::unique_ptr<Carried> what, LooseSocket loose, int family,
                            std::string hello) {
  Relay::Impl& relay = ticket->relay();
  const auto executor = what->member->link->executor();
  asio::generic::stream_protocol::socket socket(executor);
  error_code ec;
  socket.assign(asio::generic::stream_protocol(family, IPPROTO_TCP), loose.release(), ec);
  if (ec) co_return;
  const auto user = net::make_socket_stream(std::move(socket), ticket->peer());
  net::SpliceCount count;
  Result<void> done;
  auto opened = co_await what->member->link->open(what->kind, relay.options.agent_timeout_ms);
  if (!opened) {
    ticket->set_outcome("link failed");
    const std::string alert = tunnel::make_alert_record(kInternalError);
    co_await user->write(alert, 1'000);
    done = fail(opened.error());
  } else {
    relay.metrics.opened_ms(now_ms() - ticket->begun_ms());
    ticket->set_outcome(what->kind == tunnel::StreamKind::kUser ? "carried" : "challenge");
    count.forth_bytes = hello.size();
    if (relay.options.proxy_protocol && what->member->bound && what->kind == tunnel::StreamKind::kUser)
      hello.insert(0, tunnel::make_proxy_header(tunnel::proxy_address_of(ticket->peer()), {}));
    done = co_await (*opened)->write(hello, relay.options.agent_timeout_ms);
    hello = std::string();
    net::SpliceOptions options;
    options.idle_ms = relay.options.user_idle_ms;
    if (done) done = co_await net::splice(*user, **opened, options, count);
    opened->reset();
  }
  relay.metrics.bytes(count.forth_bytes, count.back_bytes);
  log_info("relayed", {{"name", ticket->name()},
                       {"peer", ticket->peer()},
                       {"link", what->member->link->facts().peer},
                       {"from_user_bytes", static_cast<unsigned long>(count.forth_bytes)},
                       {"to_user_bytes", static_cast<unsigned long>(count.back_bytes)},
                       {"ms", static_cast<long>(now_ms() - ticket->begun_ms())},
                       {"end", done ? std::string("closed") : done.error().message}});
}

std::string_view outcome_of(Registry::Miss miss) {
  switch (miss) {
    case Registry::Miss::kUnknown:
      return "unknown name";
    case Registry::Miss::kAway:
      return "agent away";
    case Registry::Miss::kFull:
      return "address full";
  }
  return "unknown name";
}

// One deadline for the whole hello, so that a byte now and then keeps nobody here.
struct Hello {
  explicit Hello(tcp::socket the_socket) : socket(std::move(the_socket)), deadline(socket.get_executor()) {}
  tcp::socket socket;
  asio::steady_timer deadline;
  bool late = false;
  ClientHelloReader reader;
};

asio::awaitable<bool> read_hello(std::shared_ptr<Hello> hello, int64_t timeout_ms) {
  hello->deadline.expires_after(std::chrono::milliseconds(timeout_ms));
  hello->deadline.async_wait([hello](const error_code& ec) {
    if (ec) return;
    hello->late = true;
    error_code ignored;
    hello->socket.close(ignored);
  });
  char buffer[2'048];
  while (hello->reader.state() == ClientHelloReader::State::kNeedMore) {
    error_code ec;
    const size_t count =
        co_await hello->socket.async_read_some(asio::buffer(buffer), asio::redirect_error(asio::use_awaitable, ec));
    if (ec) break;
    hello->reader.push({buffer, count});
  }
  hello->deadline.cancel();
  co_return hello->reader.state() != ClientHelloReader::State::kNeedMore && hello->socket.is_open();
}

// Somebody who checks a name, and wants no more than that.
bool is_authority(const tunnel::ClientHello& hello) {
  return std::find(hello.alpn.begin(), hello.alpn.end(), kAcmeProtocol) != hello.alpn.end();
}

// Where the user goes; empty: the ticket says why it goes nowhere, and `alert` what to tell it.
std::unique_ptr<Carried> route(Ticket& ticket, const tunnel::ClientHello& hello, uint8_t& alert) {
  Relay::Impl& relay = ticket.relay();
  const std::string id = hello.server_name.substr(0, hello.server_name.find('.'));
  alert = kUnrecognizedName;
  if (is_authority(hello)) {
    if (auto member = relay.registry.challenged(id))
      return std::make_unique<Carried>(std::move(member), tunnel::StreamKind::kChallenge);
    ticket.set_outcome("no challenge");
    return nullptr;
  }
  auto choice = relay.registry.choose(id, now_ms());
  if (choice.member) return std::make_unique<Carried>(std::move(choice.member), tunnel::StreamKind::kUser);
  ticket.set_outcome(outcome_of(choice.miss));
  if (choice.miss != Registry::Miss::kUnknown) alert = kInternalError;
  return nullptr;
}

asio::awaitable<void> serve_user(std::unique_ptr<Ticket> ticket, tcp::socket accepted) {
  const auto hello = std::make_shared<Hello>(std::move(accepted));
  tcp::socket& socket = hello->socket;
  if (!co_await read_hello(hello, ticket->relay().options.hello_timeout_ms)) {
    if (hello->late) ticket->set_outcome("slow hello");
    co_return;
  }
  if (hello->reader.state() == ClientHelloReader::State::kRefused) {
    ticket->set_outcome(hello->reader.reason());
    say_alert(socket, hello->reader.alert());
    co_return;
  }
  ticket->set_name(hello->reader.hello().server_name);
  if (is_authority(hello->reader.hello())) {
    if (auto shown = ticket->relay().current_challenge(ticket->name())) {
      auto plain = net::make_socket_stream(std::move(socket), ticket->peer());
      auto stream = net::make_prefixed_stream(std::move(plain), hello->reader.take());
      const bool seen = co_await ticket->relay().answer_challenge(std::move(stream), std::move(shown));
      if (seen) ticket->set_outcome("challenge");
      co_return;
    }
  }
  uint8_t alert = 0;
  auto what = route(*ticket, hello->reader.hello(), alert);
  if (!what) {
    say_alert(socket, alert);
    co_return;
  }
  // The user moves to the thread of the link: a link and all that runs on it need no locks.
  error_code ec;
  const int family = socket.local_endpoint(ec).protocol().family();
  LooseSocket loose(socket.release(ec));
  if (ec) co_return;
  const auto executor = what->member->link->executor();
  asio::co_spawn(executor, carry(std::move(ticket), std::move(what), std::move(loose), family, hello->reader.take()),
                 asio::detached);
}

}  // namespace

void Relay::Impl::take_user(tcp::socket socket, std::string address, std::string peer) {
  if (!user_sources.admit(address, now_ms())) {
    metrics.user("source limit");
    return;
  }
  if (users.fetch_add(1) >= most_users) {
    users.fetch_sub(1);
    user_sources.release(address);
    metrics.user("relay full");
    return;
  }
  auto ticket = std::make_unique<Ticket>(shared_from_this(), std::move(address), std::move(peer));
  const auto executor = socket.get_executor();
  asio::co_spawn(executor, serve_user(std::move(ticket), std::move(socket)), asio::detached);
}

}  // namespace pocketfleet::relay
