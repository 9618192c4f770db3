#include "tunnel/certificate_keeper.h"

#include <algorithm>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "crypto/certificate.h"
#include "tunnel/pace.h"

namespace pocketfleet::tunnel {

namespace {

constexpr int64_t kOrderMs = 300'000;
constexpr int64_t kLookMs = 6 * 3'600'000;  // how often the authority is asked when it wants a renewal
constexpr int64_t kSoonestMs = 10'000;      // after a failure
constexpr int64_t kLatestMs = 3'600'000;
constexpr int64_t kLeastBetweenMs = 3'600'000;  // of two orders that went well

// Few are wanted, and seldom.
uint32_t any_number() {
  return static_cast<uint32_t>(std::random_device{}());
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

CertificateKeeper::CertificateKeeper(const asio::any_io_executor& executor, AcmeOptions acme, CertificateStore store,
                                     std::string domain, P256PrivateKey key, CertificateHooks hooks)
    : acme_(std::move(acme)),
      store_(std::move(store)),
      domain_(std::move(domain)),
      key_(std::move(key)),
      hooks_(std::move(hooks)),
      stop_signal_(executor) {}

void CertificateKeeper::stop() {
  stopped_ = true;
  stop_signal_.raise();
}

asio::awaitable<Result<void>> CertificateKeeper::order(AcmeClient& client, const P256PrivateKey& account) {
  const std::vector<std::string> domains = {domain_};
  PF_CO_TRY(AcmeOrder order, co_await client.begin(domains, kOrderMs));
  if (!client.account_url().empty()) {
    PF_CO_CHECK_OK(store_.keep_account_url(account, acme_.directory_url, client.account_url()));
  }
  const bool shown = !order.key_authorization.empty();
  if (shown) {
    PF_CO_TRY(auto challenge, challenge_context(key_, domain_, order.key_authorization));
    std::string key_authorization = order.key_authorization;
    PF_CO_CHECK_OK(co_await hooks_.present(std::move(challenge), std::move(key_authorization)));
  }
  auto chain = make_certificate_request(key_, domains);
  if (chain) chain = co_await client.finish(std::move(order), std::move(*chain), kOrderMs);
  Result<void> result = chain ? store_.keep_chain(domain_, *chain) : Result<void>(fail(chain.error()));
  if (result) result = hooks_.on_chain(*chain);
  if (shown) co_await hooks_.withdraw(result.has_value());
  co_return result;
}

asio::awaitable<bool> CertificateKeeper::take_found() {
  if (!hooks_.find) co_return false;
  const auto found = co_await hooks_.find();
  if (!found) co_return false;
  const auto theirs = usable_chain(*found, domain_, key_, unix_ms());
  if (!theirs) co_return false;
  const auto chain = store_.chain(domain_, key_, unix_ms());
  const auto ours = chain ? usable_chain(*chain, domain_, key_, unix_ms()) : std::nullopt;
  if (ours && ours->not_after_ms >= theirs->not_after_ms) co_return false;
  const auto kept = store_.keep_chain(domain_, *found);
  if (!kept) co_return false;
  const auto used = hooks_.on_chain(*found);
  co_return used.has_value();
}

asio::awaitable<void> CertificateKeeper::run() {
  auto account = store_.account_key();
  while (!account && !stopped_) {
    hooks_.on_failure(account.error(), kLatestMs);
    co_await stop_signal_.wait(kLatestMs);
    if (!stopped_) account = store_.account_key();
  }
  if (stopped_) co_return;
  AcmeClient client(acme_, *account, store_.account_url(*account, acme_.directory_url));
  Pace pace({.first_window_ms = kSoonestMs, .most_window_ms = kLatestMs});
  const uint32_t jitter = any_number();
  int64_t ordered_ms = 0;
  while (!stopped_) {
    int64_t wait_ms = 0;
    if (auto chain = store_.chain(domain_, key_, unix_ms())) {
      const auto window = co_await client.renewal_window(*chain);
      const auto info = inspect_certificate(*chain);
      if (info) {
        // An authority whose window always lies behind us would otherwise be asked without a pause.
        const int64_t least_ms = std::min(kLeastBetweenMs, (info->not_after_ms - info->not_before_ms) / 10);
        const int64_t at_ms = renewal_time_ms(*info, window ? *window : std::nullopt, jitter);
        wait_ms = std::max(at_ms, ordered_ms > 0 ? ordered_ms + least_ms : 0) - unix_ms();
      }
    }
    const int64_t blocked_ms = store_.next_attempt_ms(domain_, unix_ms()) - unix_ms();
    wait_ms = std::max(wait_ms, blocked_ms);
    if (wait_ms > 0) {
      co_await stop_signal_.wait(std::min(wait_ms, kLookMs));
      continue;
    }
    if (co_await take_found()) {
      pace.reset();
      log_info("certificate_found", {{"domain", domain_}});
      continue;
    }
    // Looking may have taken a while.
    if (stopped_) break;
    log_info("certificate_ordered", {{"domain", domain_}, {"directory", acme_.directory_url}});
    const auto ordered = co_await order(client, *account);
    if (ordered) {
      ordered_ms = unix_ms();
      pace.reset();
      log_info("certificate_here", {{"domain", domain_}});
      continue;
    }
    // Who stops lets go of what the authority would have come to.
    if (stopped_) break;
    // What the authority has refused is remembered beyond a restart: it counts how often we come. What failed on the way to it is
    // tried again soon.
    const Error& error = ordered.error();
    int64_t again_ms = kSoonestMs / 2 + pace.next_ms(any_number());
    if (error.code == ErrorCode::kPermissionDenied || error.retry_after_s > 0) {
      const auto next = store_.note_failure(domain_, unix_ms(), error.retry_after_s, any_number());
      if (next) again_ms = *next - unix_ms();
    }
    hooks_.on_failure(error, again_ms);
    co_await stop_signal_.wait(again_ms);
  }
}

}  // namespace pocketfleet::tunnel
