// Where the certificate of the address comes from, and who waits for the authority when one is ordered.
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <utility>

#include "base/clock.h"
#include "base/files.h"
#include "crypto/certificate.h"
#include "net/sockets.h"
#include "tunnel/agent_impl.h"

namespace pocketfleet::tunnel {

namespace {

constexpr size_t kMostPemBytes = 256u << 10;
constexpr int64_t kIntroductionMs = 30'000;
constexpr int kSelfSignedDays = 365;
constexpr int64_t kCallMs = 3'000;
constexpr size_t kMostCalls = 16;  // to others that serve the address

}  // namespace

Result<void> Tunnel::Impl::use_certificate(const std::string& chain_pem, const std::string& key_pem) {
  PF_TRY(const CertificateInfo info, inspect_certificate(chain_pem));
  net::TlsOptions tls;
  tls.certificate_chain_pem = chain_pem;
  tls.private_key_pem = key_pem;
  tls.alpn = {"http/1.1"};
  PF_TRY(user_tls, net::TlsContext::server(tls));
  change([&](TunnelStatus& now) { now.certificate_until_ms = info.not_after_ms; });
  for (const auto& signal : waiting_for_certificate) signal->raise();
  return {};
}

Result<void> Tunnel::Impl::load_certificate() {
  if (!options.certificate_chain_file.empty()) {
    PF_TRY(const std::string chain, read_file(options.certificate_chain_file, kMostPemBytes));
    PF_TRY(const std::string key, read_file(options.private_key_file, kMostPemBytes));
    return use_certificate(chain, key);
  }
  PF_TRY(const std::string key, identity.to_pem());
  if (options.self_signed) {
    // Not in the place of one that was ordered: neither shall be taken for the other.
    const std::string file = options.state_folder + "/" + domain + ".self-signed.pem";
    const auto kept = read_file(file, kMostPemBytes);
    if (kept && usable_chain(*kept, domain, identity, unix_ms())) return use_certificate(*kept, key);
    PF_TRY(const std::string made, make_self_signed_certificate(identity, domain, kSelfSignedDays));
    PF_CHECK_OK(write_file_atomic(file, made));
    return use_certificate(made, key);
  }
  const auto chain = store.chain(domain, identity, unix_ms());
  if (chain) return use_certificate(*chain, key);
  if (!options.acme.agree) {
    return fail(ErrorCode::kInvalidArgument,
                "a certificate is ordered at " + options.acme.directory_url +
                    " only when you agree to its terms of service: say --agree-terms, or bring one with --certificate and --key");
  }
  return {};
}

asio::awaitable<Result<void>> Tunnel::Impl::present_challenge(std::shared_ptr<net::TlsContext> challenge,
                                                              std::string key_authorization) {
  // Whichever relay the authority comes to, somebody must wait for it there.
  Error last{ErrorCode::kUnavailable, "no relay takes the challenge", {}, 0};
  for (const RelayAddress& relay : options.relays) {
    auto link = co_await dial(relay);
    if (!link) {
      last = link.error();
      continue;
    }
    auto introduced = co_await (*link)->introduce(introduction(**link, key_authorization), kIntroductionMs);
    if (!introduced) {
      last = introduced.error();
      (*link)->close();
      if (last.message.find(kOrderedElsewhere) == std::string::npos) continue;
      // What they get is good for us too, so wherever we wait already, they shall have their turn.
      co_await withdraw_challenge(false);
      co_return fail(ErrorCode::kUnavailable, std::string(kOrderedElsewhere));
    }
    challenge_links.push_back(*link);
    asio::co_spawn(executor, hold(*link, challenge), asio::detached);
  }
  if (challenge_links.empty()) co_return fail(last);
  co_return Result<void>();
}

asio::awaitable<void> Tunnel::Impl::withdraw_challenge(bool certified) {
  const auto waiting = std::exchange(challenge_links, {});
  for (const auto& link : waiting) {
    // From here on they are links as any other; without a certificate they are of no use.
    bool stays = certified;
    if (certified) {
      const auto confirmed = co_await link->challenge_done(kIntroductionMs);
      stays = confirmed.has_value();
    }
    if (!stays) link->close();
  }
}

// Machines that hold the same key serve the same address, and authorities give only a few certificates a week for one name.
// Whoever serves it shows its chain to anybody who calls, and the handshake proves that it is one with our key.
asio::awaitable<std::optional<std::string>> Tunnel::Impl::find_chain() {
  net::TlsOptions anybody;
  anybody.verify_server = false;
  anybody.alpn = {"http/1.1"};
  const auto tls = net::TlsContext::client(anybody);
  if (!tls) co_return std::nullopt;
  std::optional<std::string> best;
  int64_t best_until_ms = 0;
  for (const RelayAddress& relay : options.relays) {
    // Held open meanwhile: a relay sends each further caller to another link.
    std::vector<std::unique_ptr<net::TlsStream>> calls;
    while (calls.size() < kMostCalls && !stopped) {
      auto plain = co_await net::connect_tcp(relay.host, options.public_port, kCallMs);
      if (!plain) break;
      auto call = co_await net::TlsContext::connect(*tls, std::move(*plain), domain, kCallMs);
      if (!call) break;
      std::string chain = (*call)->peer_chain();
      const auto info = usable_chain(chain, domain, identity, unix_ms());
      if (info && !info->self_issued && info->not_after_ms > best_until_ms) {
        best = std::move(chain);
        best_until_ms = info->not_after_ms;
      }
      calls.push_back(std::move(*call));
    }
  }
  co_return best;
}

asio::awaitable<void> Tunnel::Impl::hold(std::shared_ptr<AgentLink> link, std::shared_ptr<net::TlsContext> challenge) {
  const auto self = shared_from_this();
  co_await serve(link, std::move(challenge));
  link->close();
}

void Tunnel::Impl::keep_certificate() {
  if (!options.certificate_chain_file.empty() || options.self_signed) return;
  // The keeper goes with this object, which its coroutine holds.
  CertificateHooks hooks;
  hooks.find = [this]() { return find_chain(); };
  hooks.present = [this](std::shared_ptr<net::TlsContext> challenge, std::string key_authorization) {
    return present_challenge(std::move(challenge), std::move(key_authorization));
  };
  hooks.withdraw = [this](bool certified) { return withdraw_challenge(certified); };
  hooks.on_chain = [this](const std::string& chain_pem) -> Result<void> {
    PF_TRY(const std::string key, identity.to_pem());
    return use_certificate(chain_pem, key);
  };
  hooks.on_failure = [this](const Error& error, int64_t again_ms) { failed(error, again_ms); };
  keeper = std::make_unique<CertificateKeeper>(executor, options.acme, store, domain, identity, std::move(hooks));
  asio::co_spawn(
      executor, [self = shared_from_this()]() -> asio::awaitable<void> { co_await self->keeper->run(); }, asio::detached);
}

}  // namespace pocketfleet::tunnel
