// Where the certificate of the address comes from, and when it is renewed: by time, whatever the links do.
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <filesystem>

#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "crypto/certificate.h"
#include "tunnel/acme.h"
#include "tunnel/agent_impl.h"
#include "tunnel/identity.h"

namespace pocketfleet::tunnel {

namespace {

constexpr size_t kMostPemBytes = 256u << 10;
constexpr int64_t kOrderMs = 300'000;
constexpr int64_t kIntroductionMs = 30'000;
constexpr int64_t kLookMs = 6 * 3'600'000;  // how often the authority is asked when it wants a renewal
constexpr int64_t kSoonestMs = 10'000;      // after a failure
constexpr int64_t kLatestMs = 3'600'000;
constexpr int kSelfSignedDays = 365;

int64_t unix_ms() {
  return SystemClock::instance().unix_ms();
}

Result<std::shared_ptr<net::TlsContext>> challenge_context(const P256PrivateKey& key, const std::string& domain,
                                                           const std::string& key_authorization) {
  net::TlsOptions options;
  PF_TRY(options.certificate_chain_pem, make_challenge_certificate(key, domain, sha256(key_authorization)));
  PF_TRY(options.private_key_pem, key.to_pem());
  options.alpn = {"acme-tls/1"};
  return net::TlsContext::server(options);
}

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
  auto chain = store.chain(domain, identity, unix_ms());
  if (options.self_signed && !chain) {
    PF_TRY(std::string made, make_self_signed_certificate(identity, domain, kSelfSignedDays));
    PF_CHECK_OK(store.keep_chain(domain, made));
    return use_certificate(made, key);
  }
  if (chain) return use_certificate(*chain, key);
  if (!options.self_signed && !options.acme.agree) {
    return fail(ErrorCode::kInvalidArgument,
                "a certificate is ordered at " + options.acme.directory_url +
                    " only when you agree to its terms of service: say --agree-terms, or bring one with --certificate and --key");
  }
  return {};
}

asio::awaitable<Result<void>> Tunnel::Impl::order_certificate(AcmeClient& client, const P256PrivateKey& account) {
  const std::vector<std::string> domains = {domain};
  PF_CO_TRY(AcmeOrder order, co_await client.begin(domains, kOrderMs));
  if (!client.account_url().empty()) {
    PF_CO_CHECK_OK(store.keep_account_url(account, options.acme.directory_url, client.account_url()));
  }
  // Whichever relay the authority comes to, somebody must wait for it there.
  std::vector<std::shared_ptr<AgentLink>> waiting;
  Error last{ErrorCode::kUnavailable, "no relay takes the challenge", {}, 0};
  if (!order.key_authorization.empty()) {
    PF_CO_TRY(const auto challenge, challenge_context(identity, domain, order.key_authorization));
    for (const RelayAddress& relay : options.relays) {
      auto link = co_await dial(relay);
      if (!link) {
        last = link.error();
        continue;
      }
      auto introduced = co_await (*link)->introduce(introduction(**link, order.key_authorization), kIntroductionMs);
      if (!introduced) {
        last = introduced.error();
        (*link)->close();
        continue;
      }
      waiting.push_back(*link);
      asio::co_spawn(executor, hold(*link, challenge), asio::detached);
    }
    if (waiting.empty()) co_return fail(last);
  }
  auto chain = make_certificate_request(identity, domains);
  if (chain) chain = co_await client.finish(std::move(order), std::move(*chain), kOrderMs);
  Result<void> result = chain ? store.keep_chain(domain, *chain) : Result<void>(fail(chain.error()));
  if (result) {
    const auto key = identity.to_pem();
    result = key ? use_certificate(*chain, *key) : Result<void>(fail(key.error()));
  }
  for (const auto& link : waiting) {
    // From here on they are links as any other; without a certificate they are of no use.
    Result<void> confirmed = result;
    if (confirmed) confirmed = co_await link->challenge_done(kIntroductionMs);
    if (!confirmed) link->close();
  }
  co_return result;
}

asio::awaitable<void> Tunnel::Impl::hold(std::shared_ptr<AgentLink> link, std::shared_ptr<net::TlsContext> challenge) {
  const auto self = shared_from_this();
  co_await serve(link, std::move(challenge));
  link->close();
}

asio::awaitable<void> Tunnel::Impl::keep_certificate() {
  if (!options.certificate_chain_file.empty() || options.self_signed) co_return;
  auto account = store.account_key();
  if (!account) {
    failed(account.error(), kLatestMs);
    co_return;
  }
  AcmeClient client(options.acme, *account, store.account_url(*account, options.acme.directory_url));
  Pace pace({.first_window_ms = kSoonestMs, .most_window_ms = kLatestMs});
  const uint32_t jitter = random_number();
  while (!stopped) {
    int64_t wait_ms = 0;
    if (auto chain = store.chain(domain, identity, unix_ms())) {
      const auto window = co_await client.renewal_window(*chain);
      const auto info = inspect_certificate(*chain);
      if (info) wait_ms = renewal_time_ms(*info, window ? *window : std::nullopt, jitter) - unix_ms();
    }
    const int64_t blocked_ms = store.next_attempt_ms(domain, unix_ms()) - unix_ms();
    wait_ms = std::max(wait_ms, blocked_ms);
    if (wait_ms > 0) {
      co_await stop_signal->wait(std::min(wait_ms, kLookMs));
      continue;
    }
    log_info("certificate_ordered", {{"domain", domain}, {"directory", options.acme.directory_url}});
    const auto ordered = co_await order_certificate(client, *account);
    if (ordered) {
      pace.reset();
      log_info("certificate_here", {{"domain", domain}});
      continue;
    }
    // What the authority has refused is remembered beyond a restart: it counts how often we come. What failed on the way to it is
    // tried again soon.
    const Error& error = ordered.error();
    int64_t again_ms = kSoonestMs / 2 + pace.next_ms(random_number());
    if (error.code == ErrorCode::kPermissionDenied || error.retry_after_s > 0) {
      const auto next = store.note_failure(domain, unix_ms(), error.retry_after_s, random_number());
      if (next) again_ms = *next - unix_ms();
    }
    failed(error, again_ms);
    co_await stop_signal->wait(again_ms);
  }
}

}  // namespace pocketfleet::tunnel
