// From an agent's connection to a link that takes users: who is it, may it, and for how long.
#include <malloc.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "base/clock.h"
#include "base/log.h"
#include "crypto/certificate.h"
#include "net/sockets.h"
#include "relay/relay_impl.h"
#include "tunnel/h2_link.h"
#include "tunnel/identity.h"

namespace pocketfleet::relay {

namespace {

using tcp = asio::ip::tcp;

constexpr size_t kTrimEvery = 500;   // links
constexpr int64_t kProbeMs = 3'000;  // for a sign of life when somebody else comes with the same id

// What the agent claims, once its proof has been checked.
Result<AgentClaim> check_claim(const tunnel::AgentHello& hello, const tunnel::LinkFacts& facts, const RelayOptions& options,
                               const std::vector<std::string>& suffixes) {
  AgentClaim claim;
  claim.domain = hello.domain;
  claim.peer = facts.peer;
  if (!hello.bound && !options.accept_legacy)
    return fail(ErrorCode::kPermissionDenied, "the proof is not bound to this connection; this relay takes no others");
  if (!tunnel::suffix_allowed(hello.domain, suffixes))
    return fail(ErrorCode::kPermissionDenied, "unauthorized: domain suffix not allowed");
  const auto binding = hello.bound ? std::optional<std::string_view>(facts.binding) : std::nullopt;
  PF_TRY(const P256PublicKey key, tunnel::check_proof(hello.domain, hello.proof, binding));
  claim.identity_key = key.compressed();
  auto certificate = inspect_certificate_der(facts.peer_certificate);
  if (!certificate) return fail(ErrorCode::kPermissionDenied, "unauthorized: client certificate");
  claim.agent_key = std::move(certificate->public_key);
  claim.extension = std::move(certificate->tunnel_extension);
  return claim;
}

asio::awaitable<void> probe(std::shared_ptr<Member> member) {
  // Several may come at the same moment; one answer is good for all of them.
  if (std::exchange(member->asked, true)) co_return;
  const bool lives = co_await member->link->probe(kProbeMs);
  member->asked = false;
  if (lives) {
    member->ill = false;
  } else {
    member->link->close("another link of this address came, and this one did not answer", false);
  }
}

asio::awaitable<Result<void>> hold_challenge(Relay::Impl& relay, std::shared_ptr<Member> member, std::string key_auth) {
  auto expected = relay.registry.expect_challenge(member, key_auth);
  if (!expected) {
    // It may have been cut off in the middle of its order.
    if (auto other = relay.registry.challenged(member->id)) {
      const auto executor = other->link->executor();
      asio::co_spawn(executor, probe(std::move(other)), asio::detached);
    }
    co_return expected;
  }
  auto done = co_await member->link->begin_challenge(relay.options.agent_timeout_ms);
  if (done) done = co_await member->link->wait_challenge_done(relay.options.challenge_timeout_ms);
  relay.registry.end_challenge(member);
  co_return done;
}

}  // namespace

asio::awaitable<void> Relay::Impl::serve_link(std::shared_ptr<tunnel::RelayLink> link) {
  const auto self = shared_from_this();
  const tunnel::LinkFacts& facts = link->facts();
  const auto refuse = [&](const Error& error, bool refused) {
    metrics.agent(facts.carrier, refused ? "refused" : "failed");
    log_warn(refused ? "agent_refused" : "agent_failed",
             {{"peer", facts.peer}, {"carrier", facts.carrier}, {"reason", error.message}});
    link->close(error.message, refused);
  };
  auto hello = co_await link->receive_hello(options.agent_timeout_ms);
  if (!hello) {
    refuse(hello.error(), false);
    co_return;
  }
  auto claim = check_claim(*hello, facts, options, current_suffixes());
  if (!claim) {
    refuse(claim.error(), true);
    co_return;
  }
  if (options.authorise) {
    const auto allowed = co_await options.authorise(*claim);
    if (!allowed) {
      refuse(allowed.error(), allowed.error().code == ErrorCode::kPermissionDenied);
      co_return;
    }
  }
  const auto member = std::make_shared<Member>(claim->domain.substr(0, claim->domain.find('.')), link);
  member->bound = hello->bound;
  if (!hello->key_auth.empty()) {
    const auto done = co_await hold_challenge(*this, member, hello->key_auth);
    if (!done) {
      refuse(done.error(), false);
      co_return;
    }
    metrics.agent(facts.carrier, "certified");
  }
  auto before = registry.join(member);
  if (!before) {
    refuse(before.error(), false);
    co_return;
  }
  for (auto& other : *before) {
    const auto executor = other->link->executor();
    asio::co_spawn(executor, probe(std::move(other)), asio::detached);
  }
  before->clear();
  // A handshake leaves holes in the heap behind it; thousands of them are a tenth of the memory, and an idle tunnel fills none.
  if (joins.fetch_add(1) % kTrimEvery == kTrimEvery - 1) ::malloc_trim(0);
  const int64_t joined_ms = now_ms();
  metrics.agent(facts.carrier, "joined");
  log_info("agent_joined", {{"domain", claim->domain}, {"peer", facts.peer}, {"carrier", facts.carrier}});
  if (draining) {
    member->retired = true;
    link->retire();
  }
  const auto confirmed = co_await link->confirm(options.agent_timeout_ms);
  if (!confirmed) link->close(confirmed.error().message, false);
  const Error end = co_await link->wait_closed();
  registry.leave(member, now_ms());
  log_info("agent_left", {{"domain", claim->domain},
                          {"peer", facts.peer},
                          {"s", static_cast<long>((now_ms() - joined_ms) / 1000)},
                          {"reason", end.message}});
}

void Relay::Impl::take_agent(tcp::socket socket, std::string address, std::string peer) {
  if (draining || !agent_sources.admit(address, now_ms())) {
    metrics.agent("h2", draining ? "draining" : "source limit");
    return;
  }
  const auto executor = socket.get_executor();
  auto stream = net::make_socket_stream(std::move(socket), std::move(peer));
  asio::co_spawn(
      executor,
      [self = shared_from_this(), stream = std::move(stream), address]() mutable -> asio::awaitable<void> {
        const std::string from = stream->peer();
        auto tls = co_await net::TlsContext::accept(self->current_tls(), std::move(stream), self->options.agent_timeout_ms);
        if (tls) {
          tunnel::H2Options options;
          options.keep_alive_ms = self->options.keep_alive_ms;
          options.idle_timeout_ms = self->options.link_idle_ms;
          auto link = tunnel::make_h2_relay_link(std::move(*tls), options);
          if (link) co_await self->serve_link(std::move(*link));
        } else {
          self->metrics.agent("h2", "TLS failed");
          log_debug("agent_tls_failed", {{"peer", from}, {"reason", tls.error().message}});
        }
        self->agent_sources.release(address);
      },
      asio::detached);
}

}  // namespace pocketfleet::relay
