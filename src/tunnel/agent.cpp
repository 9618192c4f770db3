#include "tunnel/agent.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <charconv>
#include <chrono>
#include <optional>
#include <random>

#include "base/clock.h"
#include "base/folders.h"
#include "base/log.h"
#include "crypto/certificate.h"
#include "net/sockets.h"
#include "tunnel/agent_impl.h"
#include "tunnel/h2_link.h"
#include "tunnel/identity.h"
#include "tunnel/quic_link.h"

namespace pocketfleet::tunnel {

namespace {

constexpr int64_t kIntroductionMs = 30'000;
constexpr int64_t kLookMs = 200;  // whether a link has lost its last user

}  // namespace

uint32_t random_number() {
  static thread_local std::mt19937 generator{std::random_device{}()};
  return static_cast<uint32_t>(generator());
}

std::string_view state_name(TunnelState state) {
  switch (state) {
    case TunnelState::kConnecting:
      return "connecting";
    case TunnelState::kReady:
      return "ready";
    case TunnelState::kFailing:
      return "failing";
  }
  return "failing";
}

Result<RelayAddress> parse_relay_address(std::string_view text) {
  RelayAddress out;
  const auto refuse = [&] {
    return fail(ErrorCode::kInvalidArgument, "\"" + std::string(text) + "\" is no relay: give HOST or HOST:PORT", "relay");
  };
  std::string_view port;
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == std::string_view::npos) return refuse();
    out.host = text.substr(1, end - 1);
    if (end + 1 < text.size()) {
      if (text[end + 1] != ':') return refuse();
      port = text.substr(end + 2);
      if (port.empty()) return refuse();
    }
  } else {
    const size_t colon = text.find(':');
    out.host = text.substr(0, colon);
    if (colon != std::string_view::npos) {
      port = text.substr(colon + 1);
      if (port.empty()) return refuse();
    }
  }
  if (out.host.empty()) return refuse();
  if (!port.empty()) {
    const auto [end, ec] = std::from_chars(port.data(), port.data() + port.size(), out.port);
    if (ec != std::errc() || end != port.data() + port.size() || out.port == 0) return refuse();
  }
  return out;
}

Tunnel::Tunnel(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tunnel::~Tunnel() = default;

Result<std::shared_ptr<Tunnel>> Tunnel::make(TunnelOptions options) {
  if (options.relays.empty()) return fail(ErrorCode::kInvalidArgument, "a tunnel needs a relay", "relay");
  if (!is_dns_name(options.suffix))
    return fail(ErrorCode::kInvalidArgument, "\"" + options.suffix + "\" is no domain that an address could end with", "suffix");
  PF_CHECK_OK(make_private_folder(options.state_folder));
  PF_TRY(P256PrivateKey identity, load_or_make_key(options.state_folder + "/identity.key"));
  CertificateStore store(options.state_folder);
  auto impl = std::make_shared<Impl>(std::move(options), std::move(identity), std::move(store));
  impl->domain = client_id(impl->identity.public_key()) + "." + impl->options.suffix;
  impl->status.url = "https://" + impl->domain;
  PF_TRY(impl->agent_chain, make_agent_certificate(impl->identity, impl->options.extension));
  PF_TRY(impl->agent_key, impl->identity.to_pem());
  net::TlsOptions tls;
  tls.certificate_chain_pem = impl->agent_chain;
  tls.private_key_pem = impl->agent_key;
  tls.trusted_file = impl->options.relay_ca_file;
  PF_TRY(impl->relay_tls, net::TlsContext::client(tls));
  PF_CHECK_OK(impl->load_certificate());
  return std::shared_ptr<Tunnel>(new Tunnel(std::move(impl)));
}

const std::string& Tunnel::domain() const {
  return impl_->domain;
}

void Tunnel::start(const asio::any_io_executor& executor, std::function<void(const TunnelStatus&)> on_change) {
  impl_->executor = executor;
  impl_->on_change = std::move(on_change);
  for (const RelayAddress& relay : impl_->options.relays) {
    for (size_t i = 0; i < impl_->options.links_per_relay; ++i) {
      asio::co_spawn(
          executor, [self = impl_, relay]() -> asio::awaitable<void> { co_await self->keep_link(relay); }, asio::detached);
    }
  }
  impl_->keep_certificate();
}

void Tunnel::stop() {
  Impl& self = *impl_;
  self.stopped = true;
  if (self.keeper) self.keeper->stop();
  for (const auto& signal : self.waiting_for_certificate) signal->raise();
  for (const auto& link : self.links) link->close();
}

TunnelStatus Tunnel::status() const {
  const std::lock_guard lock(impl_->status_mutex);
  return impl_->status;
}

void Tunnel::Impl::change(const std::function<void(TunnelStatus&)>& what) {
  TunnelStatus now;
  {
    const std::lock_guard lock(status_mutex);
    what(status);
    now = status;
  }
  if (on_change) on_change(now);
}

void Tunnel::Impl::failed(const Error& error, int64_t next_try_in_ms) {
  log_warn("tunnel_failed", {{"reason", error.message}, {"next_try_s", static_cast<double>(next_try_in_ms) / 1000.0}});
  change([&](TunnelStatus& now) {
    now.last_error = error.message;
    now.next_try_ms = unix_ms() + next_try_in_ms;
    if (now.links == 0) now.state = TunnelState::kFailing;
  });
}

void Tunnel::Impl::count_links(const std::string& carrier) {
  change([&](TunnelStatus& now) {
    const bool more = links.size() > now.links;
    now.links = links.size();
    if (more) {
      now.state = TunnelState::kReady;
      now.carrier = carrier;
      now.last_error.clear();
      now.next_try_ms = 0;
    } else if (now.links == 0 && now.state == TunnelState::kReady) {
      now.state = TunnelState::kConnecting;
    }
  });
}

asio::awaitable<void> Tunnel::Impl::pause(int64_t ms) {
  asio::steady_timer timer(executor, std::chrono::milliseconds(ms));
  boost::system::error_code ignored;
  co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

AgentLink::Introduction Tunnel::Impl::introduction(const AgentLink& link, std::string key_auth) const {
  AgentLink::Introduction out;
  out.domain = domain;
  out.key_auth = std::move(key_auth);
  out.prove = [self = shared_from_this(), binding = link.facts().binding](bool bound) -> Result<std::string> {
    if (bound) return prove_binding(self->identity, self->domain, binding);
    if (self->options.accept_legacy) return prove_domain(self->identity, self->domain);
    return fail(ErrorCode::kPermissionDenied,
                "the relay asks for a proof that it could use elsewhere; allow that with --accept legacy");
  };
  return out;
}

asio::awaitable<Result<std::shared_ptr<AgentLink>>> Tunnel::Impl::dial_h2(RelayAddress relay) {
  PF_CO_TRY(auto plain, co_await net::connect_tcp(relay.host, relay.port, options.connect_timeout_ms));
  PF_CO_TRY(auto tls, co_await net::TlsContext::connect(relay_tls, std::move(plain), relay.host, options.connect_timeout_ms));
  H2Options h2;
  h2.keep_alive_ms = options.keep_alive_ms;
  h2.idle_timeout_ms = options.link_idle_ms;
  co_return make_h2_agent_link(std::move(tls), h2);
}

asio::awaitable<Result<std::shared_ptr<AgentLink>>> Tunnel::Impl::dial_quic(RelayAddress relay) {
  QuicDialOptions quic;
  quic.certificate_chain_pem = agent_chain;
  quic.private_key_pem = agent_key;
  quic.trusted_file = options.relay_ca_file;
  quic.keep_alive_ms = options.keep_alive_ms;
  quic.idle_timeout_ms = options.link_idle_ms;
  const int64_t timeout_ms = options.carrier == "quic" ? options.connect_timeout_ms : options.quic_timeout_ms;
  auto link = co_await tunnel::dial_quic(relay.host, relay.port, relay.host, quic, timeout_ms);
  const bool old = !link && link.error().code == ErrorCode::kUnsupportedParameter;
  if (old && options.accept_legacy) {
    quic.legacy = true;
    link = co_await tunnel::dial_quic(relay.host, relay.port, relay.host, quic, timeout_ms);
  }
  co_return link;
}

asio::awaitable<Result<std::shared_ptr<AgentLink>>> Tunnel::Impl::dial(RelayAddress relay) {
  if (options.carrier != "h2" && quic_available()) {
    auto link = co_await dial_quic(relay);
    if (link || options.carrier == "quic") co_return link;
    log_debug("no_quic", {{"relay", relay.host}, {"reason", link.error().message}});
  }
  co_return co_await dial_h2(relay);
}

asio::awaitable<Error> Tunnel::Impl::serve(std::shared_ptr<AgentLink> link, std::shared_ptr<net::TlsContext> challenge) {
  for (;;) {
    auto next = co_await link->accept();
    if (!next) co_return next.error();
    const bool is_challenge = next->kind == StreamKind::kChallenge;
    const auto tls = is_challenge ? challenge : user_tls;
    // Whoever comes for something that is not there is reset by letting go of the stream.
    if (!tls || users >= options.most_users) continue;
    auto work = is_challenge ? serve_challenge(std::move(next->stream), tls) : serve_user(std::move(next->stream), tls);
    asio::co_spawn(executor, std::move(work), asio::detached);
  }
}

// One of the links that are kept to a relay, and the better one that has been found for it.
struct Tunnel::Impl::Slot {
  Slot(const asio::any_io_executor& executor, std::shared_ptr<AgentLink> the_link) : link(std::move(the_link)), done(executor) {}
  const std::shared_ptr<AgentLink> link;  // over HTTP/2
  bool ended = false;                     // that link is no more
  bool taken_over = false;
  bool up = false;           // the link over QUIC takes users
  std::optional<Error> end;  // of that link
  net::Signal done;
};

asio::awaitable<Error> Tunnel::Impl::run_link(std::shared_ptr<AgentLink> link, bool& up) {
  const auto introduced = co_await link->introduce(introduction(*link, {}), kIntroductionMs);
  if (!introduced) {
    link->close();
    co_return introduced.error();
  }
  up = true;
  links.insert(link);
  count_links(link->facts().carrier);
  log_info("tunnel_link_up", {{"relay", link->facts().peer}, {"carrier", link->facts().carrier}});
  Error error = co_await serve(link, nullptr);
  links.erase(link);
  count_links({});
  link->close();
  co_return error;
}

asio::awaitable<void> Tunnel::Impl::seek_quic(RelayAddress relay, std::shared_ptr<Slot> slot) {
  const auto self = shared_from_this();
  while (!slot->ended && !stopped) {
    // A quarter more or less, so that two links do not look at the same moment.
    co_await pause(options.quic_retry_ms * 3 / 4 + options.quic_retry_ms / 2 * (random_number() % 1'024) / 1'024);
    if (slot->ended || stopped) break;
    auto found = co_await dial_quic(relay);
    if (!found) continue;
    slot->taken_over = true;
    slot->end.reset();
    asio::co_spawn(
        executor,
        [self, slot, link = *found]() -> asio::awaitable<void> {
          slot->end = co_await self->run_link(link, slot->up);
          slot->done.raise();
        },
        asio::detached);
    // The old link goes once the new one takes users and the last of its own has gone.
    while (!slot->ended && !slot->end && (!slot->up || slot->link->open_streams() > 0)) co_await pause(kLookMs);
    if (slot->up) {
      slot->link->close();
      break;
    }
    slot->taken_over = false;
  }
}

asio::awaitable<void> Tunnel::Impl::keep_link(RelayAddress relay) {
  Pace pace(options.pace);
  while (!stopped) {
    if (!user_tls) {
      const auto signal = std::make_shared<net::Signal>(executor);
      waiting_for_certificate.push_back(signal);
      co_await signal->wait(-1);
      std::erase(waiting_for_certificate, signal);
      continue;
    }
    Error error;
    auto link = co_await dial(relay);
    if (!link) {
      error = link.error();
    } else {
      const auto slot = std::make_shared<Slot>(executor, *link);
      const bool better = options.carrier == "auto" && quic_available() && (*link)->facts().carrier != "quic";
      if (better) asio::co_spawn(executor, seek_quic(relay, slot), asio::detached);
      bool up = false;
      error = co_await run_link(*link, up);
      slot->ended = true;
      if (slot->taken_over) {
        if (!slot->end) co_await slot->done.wait(-1);
        if (slot->end) error = *slot->end;
      }
      if (up) pace.reset();
    }
    if (stopped) break;
    const int64_t wait_ms = pace.next_ms(random_number());
    failed(error, wait_ms);
    co_await pause(wait_ms);
  }
}

}  // namespace pocketfleet::tunnel
