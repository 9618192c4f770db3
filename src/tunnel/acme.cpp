#include "tunnel/acme.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <random>
#include <utility>

#include "base/clock.h"
#include "net/http_client.h"
#include "net/tls.h"
#include "net/url.h"
#include "tunnel/acme_objects.h"
#include "tunnel/acme_wire.h"

namespace pocketfleet::tunnel {

namespace {

constexpr size_t kMostHeaderBytes = 32u << 10;
constexpr size_t kMostNameBytes = 253;
constexpr int64_t kMostRequestMs = 30'000;
constexpr int64_t kMostPollMs = 10'000;
constexpr int kMostNonceTries = 10;

bool is_loopback(const std::string& host) {
  if (host == "localhost") return true;
  boost::system::error_code error;
  const auto address = asio::ip::make_address(host, error);
  return !error && address.is_loopback();
}

// The connection failed, not the request: the same can be asked again.
bool is_passing(const Error& error) {
  return error.code == ErrorCode::kConnectionClosed || error.code == ErrorCode::kIo || error.code == ErrorCode::kDeadlineExceeded;
}

int retry_after_s(const net::HttpResponse& answer) {
  const auto value = answer.headers.get("retry-after");
  return value ? parse_retry_after(*value, SystemClock::instance().unix_ms()) : 0;
}

std::string location_of(const net::HttpResponse& answer) {
  return std::string(answer.headers.get("location").value_or(""));
}

Result<void> expect_success(const net::HttpResponse& answer, const std::string& doing) {
  if (answer.status / 100 == 2) return {};
  return fail(error_of(read_problem(answer.status, answer.body), doing, retry_after_s(answer)));
}

std::string reason(const std::string& fault) {
  return fault.empty() ? "it does not say why" : fault;
}

tl::unexpected<Error> order_refused(const AcmeOrderState& state, const std::string& domain) {
  return fail(ErrorCode::kPermissionDenied,
              fmt::format("the certificate authority gave up the order for {}: {}", domain, reason(state.fault)));
}

tl::unexpected<Error> proof_refused(const AcmeAuthorization& authorization) {
  return fail(ErrorCode::kPermissionDenied,
              fmt::format("the certificate authority could not verify that {} is ours (the authorization is {}): {}",
                          authorization.domain.substr(0, kMostNameBytes), authorization.status, reason(authorization.fault)));
}

Result<void> check_names(const std::vector<std::string>& domains) {
  if (domains.empty() || domains.size() > kMostAcmeNames) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a certificate is ordered for 1 to {} names, not for {}", kMostAcmeNames, domains.size()));
  }
  for (const std::string& domain : domains) {
    if (!is_dns_name(domain)) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("\"{}\" is no name to order a certificate for; write it in lower case, without a wildcard",
                              domain.substr(0, kMostNameBytes)));
    }
  }
  return {};
}

// Notes in the order what an authorization asks for, if anything.
Result<void> take_challenge(const AcmeAuthorization& authorization, const std::string& url, const std::string& thumbprint,
                            AcmeOrder& order) {
  if (authorization.status == "valid") return {};
  if (authorization.status != "pending") return proof_refused(authorization);
  if (!order.key_authorization.empty()) {
    return fail(ErrorCode::kUnsupportedParameter,
                fmt::format("the certificate authority wants proof for {} and for {}: order a certificate for each alone first",
                            order.domain, authorization.domain));
  }
  if (authorization.challenge_url.empty()) {
    return fail(ErrorCode::kUnsupportedParameter,
                fmt::format("the certificate authority offers no tls-alpn-01 challenge for {}, and we can answer no other",
                            authorization.domain));
  }
  order.domain = authorization.domain;
  order.authorization_url = url;
  order.challenge_url = authorization.challenge_url;
  order.key_authorization = authorization.token + "." + thumbprint;
  return {};
}

}  // namespace

struct AcmeClient::Impl {
  Impl(AcmeOptions the_options, P256PrivateKey the_key, std::string the_account_url)
      : options(std::move(the_options)), key(std::move(the_key)), account_url(std::move(the_account_url)) {}

  AcmeOptions options;
  P256PrivateKey key;
  std::string account_url;
  std::unique_ptr<net::HttpClient> http;
  bool may_be_plain = false;  // http:// is good for a directory on loopback, and then for what it names
  AcmeDirectory directory;
  std::string nonce;  // the freshest that we were given; each is good for one request
  std::minstd_rand random{std::random_device{}()};

  int64_t first_pause_ms() const { return std::clamp<int64_t>(options.poll_ms, 1, kMostPollMs); }
  Result<void> open();
  Result<void> check_url(const std::string& url) const;
  asio::awaitable<Result<net::HttpResponse>> call(const char* method, std::string url, std::string body, int64_t until);
  asio::awaitable<Result<std::string>> take_nonce(int64_t until);
  asio::awaitable<Result<net::HttpResponse>> post(std::string url, std::string payload, bool by_account, int64_t until);
  asio::awaitable<Result<net::HttpResponse>> look(std::string url, int64_t& pause_ms, int64_t until);
  asio::awaitable<Result<void>> rest(int64_t& pause_ms, int asked_s, int64_t until);
  asio::awaitable<Result<void>> load_directory(int64_t until);
  asio::awaitable<Result<void>> ensure_account(int64_t until);
  asio::awaitable<Result<AcmeOrder>> make_order(const std::vector<std::string>& domains, int64_t until);
  asio::awaitable<Result<void>> prove(const AcmeOrder& order, int64_t until);
  asio::awaitable<Result<std::string>> issue(const AcmeOrder& order, const std::string& payload, int64_t until);
};

Result<void> AcmeClient::Impl::open() {
  if (http) return {};
  PF_TRY(const net::Url url, net::parse_url(options.directory_url));
  if (url.scheme == net::Url::Scheme::kUnix || (url.scheme == net::Url::Scheme::kHttp && !is_loopback(url.host))) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the ACME directory {} must be an https:// address; http:// is for loopback", options.directory_url));
  }
  may_be_plain = url.scheme == net::Url::Scheme::kHttp;
  net::ClientOptions settings;
  settings.total_timeout_ms = kMostRequestMs;
  settings.stall_timeout_ms = kMostRequestMs;
  settings.max_header_bytes = kMostHeaderBytes;
  settings.max_body_bytes = kMostAcmeBytes;
  settings.max_idle_connections = 2;
  if (!may_be_plain && !options.ca_file.empty()) {
    net::TlsOptions trust;
    trust.trusted_file = options.ca_file;
    PF_TRY(settings.tls, net::TlsContext::client(trust));
  }
  http = std::make_unique<net::HttpClient>(std::move(settings));
  return {};
}

Result<void> AcmeClient::Impl::check_url(const std::string& url) const {
  const auto parsed = net::parse_url(url);
  if (!parsed) return unclear_answer(parsed.error().message);
  if (parsed->scheme == net::Url::Scheme::kHttps) return {};
  if (may_be_plain && parsed->scheme == net::Url::Scheme::kHttp && is_loopback(parsed->host)) return {};
  return unclear_answer("it sends us to " + url + ", which is not https://");
}

asio::awaitable<Result<net::HttpResponse>> AcmeClient::Impl::call(const char* method, std::string url, std::string body,
                                                                  int64_t until) {
  PF_CO_CHECK_OK(check_url(url));
  const int64_t left_ms = until - now_ms();
  if (left_ms <= 0) co_return fail(ErrorCode::kDeadlineExceeded, "there was no time left to call " + url);
  net::ClientRequest request;
  request.method = method;
  request.url = url;
  request.body = std::move(body);
  request.headers.add("user-agent", "pocketfleet");
  request.headers.add("accept-language", "en");
  if (!request.body.empty()) request.headers.add("content-type", "application/jose+json");
  request.total_timeout_ms = std::min(left_ms, kMostRequestMs);
  auto answer = co_await http->request(std::move(request));
  if (!answer) {
    Error error = std::move(answer).error();
    error.message = url + ": " + error.message;
    co_return fail(std::move(error));
  }
  if (const auto fresh = answer->headers.get("replay-nonce"); fresh && is_base64url_word(*fresh)) nonce = std::string(*fresh);
  co_return std::move(*answer);
}

asio::awaitable<Result<std::string>> AcmeClient::Impl::take_nonce(int64_t until) {
  if (nonce.empty()) {
    PF_CO_TRY(const net::HttpResponse answer, co_await call("HEAD", directory.new_nonce, std::string(), until));
    PF_CO_CHECK_OK(expect_success(answer, "give a nonce"));
    if (nonce.empty()) co_return unclear_answer("it has no nonce where one was asked for");
  }
  std::string taken = std::exchange(nonce, std::string());
  co_return std::move(taken);
}

// Sends until the authority has taken it in: a nonce that is refused comes with a fresh one for the very same request, and an
// account that is not known any more is made anew.
asio::awaitable<Result<net::HttpResponse>> AcmeClient::Impl::post(std::string url, std::string payload, bool by_account,
                                                                  int64_t until) {
  bool account_was_lost = false;
  for (int refused = 0; refused < kMostNonceTries;) {
    if (by_account) PF_CO_CHECK_OK(co_await ensure_account(until));
    JwsHeader header;
    PF_CO_TRY(header.nonce, co_await take_nonce(until));
    header.url = url;
    if (by_account) header.kid = account_url;
    PF_CO_TRY(std::string body, sign_jws(key, header, payload));
    PF_CO_TRY(net::HttpResponse answer, co_await call("POST", url, std::move(body), until));
    if (answer.status < 400) co_return std::move(answer);
    const AcmeProblem problem = read_problem(answer.status, answer.body);
    if (problem.is("badNonce")) {
      ++refused;
    } else if (by_account && !account_was_lost && problem.is("accountDoesNotExist")) {
      account_was_lost = true;
      // Another call may have made it already.
      if (account_url == header.kid) account_url.clear();
    } else {
      co_return std::move(answer);
    }
  }
  co_return fail(ErrorCode::kUnavailable,
                 fmt::format("the certificate authority refused {} nonces one after the other at {}", kMostNonceTries, url));
}

// Reads something of ours (POST as GET), and again when the connection fails.
asio::awaitable<Result<net::HttpResponse>> AcmeClient::Impl::look(std::string url, int64_t& pause_ms, int64_t until) {
  for (;;) {
    auto answer = co_await post(url, std::string(), true, until);
    if (answer || !is_passing(answer.error())) co_return std::move(answer);
    PF_CO_CHECK_OK(co_await rest(pause_ms, 0, until));
  }
}

// Between two looks: longer each time, by chance, and not shorter than the authority asks for.
asio::awaitable<Result<void>> AcmeClient::Impl::rest(int64_t& pause_ms, int asked_s, int64_t until) {
  const int64_t chance_ms = static_cast<int64_t>(random() % static_cast<uint64_t>(pause_ms / 2 + 1));
  const int64_t wait_ms = std::max(pause_ms + chance_ms, int64_t{1'000} * asked_s);
  pause_ms = std::min(pause_ms + pause_ms / 2 + 1, kMostPollMs);
  if (now_ms() + wait_ms >= until) {
    Error error;
    error.code = ErrorCode::kDeadlineExceeded;
    error.message = "the certificate authority did not get ready in the time that it was given; order again later";
    error.retry_after_s = asked_s;
    co_return fail(std::move(error));
  }
  asio::steady_timer timer(co_await asio::this_coro::executor, std::chrono::milliseconds(wait_ms));
  boost::system::error_code ignored;
  co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  co_return Result<void>();
}

asio::awaitable<Result<void>> AcmeClient::Impl::load_directory(int64_t until) {
  PF_CO_TRY(const net::HttpResponse answer, co_await call("GET", options.directory_url, std::string(), until));
  PF_CO_CHECK_OK(expect_success(answer, "show its directory"));
  PF_CO_TRY(directory, read_directory(answer.body));
  co_return Result<void>();
}

asio::awaitable<Result<void>> AcmeClient::Impl::ensure_account(int64_t until) {
  if (!account_url.empty()) co_return Result<void>();
  if (directory.needs_binding) {
    co_return fail(ErrorCode::kUnsupportedParameter,
                   fmt::format("the certificate authority of {} wants accounts bound to one that it made (external account "
                               "binding), which is not supported; take another authority",
                               options.directory_url));
  }
  if (!directory.terms.empty() && !options.agree) {
    co_return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("the certificate authority has terms of service, see {}; agree to them to get an account", directory.terms));
  }
  const std::string payload = account_payload(options.contact, options.agree);
  PF_CO_TRY(const net::HttpResponse answer, co_await post(directory.new_account, payload, false, until));
  PF_CO_CHECK_OK(expect_success(answer, "make an account"));
  const std::string url = location_of(answer);
  PF_CO_CHECK_OK(check_url(url));
  account_url = url;
  co_return Result<void>();
}

asio::awaitable<Result<AcmeOrder>> AcmeClient::Impl::make_order(const std::vector<std::string>& domains, int64_t until) {
  PF_CO_CHECK_OK(check_names(domains));
  PF_CO_CHECK_OK(open());
  // Anew for each order: an authority may move, and a client lives for months.
  PF_CO_CHECK_OK(co_await load_directory(until));
  PF_CO_TRY(const std::string thumbprint, jwk_thumbprint(key.public_key()));
  const std::string payload = order_payload(domains);
  PF_CO_TRY(const net::HttpResponse answer, co_await post(directory.new_order, payload, true, until));
  PF_CO_CHECK_OK(expect_success(answer, "take the order for " + domains.front()));
  PF_CO_TRY(const AcmeOrderState state, read_order(answer.body));
  if (state.status == "invalid") co_return order_refused(state, domains.front());
  AcmeOrder order;
  order.url = location_of(answer);
  order.finalize_url = state.finalize_url;
  order.domain = domains.front();
  PF_CO_CHECK_OK(check_url(order.url));
  PF_CO_CHECK_OK(check_url(order.finalize_url));
  if (state.status != "pending") co_return std::move(order);
  int64_t pause_ms = first_pause_ms();
  for (const std::string& url : state.authorizations) {
    PF_CO_TRY(const net::HttpResponse shown, co_await look(url, pause_ms, until));
    PF_CO_CHECK_OK(expect_success(shown, "show what it wants as proof"));
    PF_CO_TRY(const AcmeAuthorization authorization, read_authorization(shown.body));
    if (std::find(domains.begin(), domains.end(), authorization.domain) == domains.end())
      co_return unclear_answer("an authorization is for a name that was not ordered");
    PF_CO_CHECK_OK(take_challenge(authorization, url, thumbprint, order));
  }
  co_return std::move(order);
}

// Lets the authority look at what is shown, and waits for its verdict.
asio::awaitable<Result<void>> AcmeClient::Impl::prove(const AcmeOrder& order, int64_t until) {
  const std::string ready = "{}";
  int64_t pause_ms = first_pause_ms();
  bool told = false;
  for (;;) {
    // Once it has heard us it must not hear it again: it could begin to check anew. Where the answer is lost, it may not have.
    if (!told) {
      auto heard = co_await post(order.challenge_url, ready, true, until);
      if (!heard && !is_passing(heard.error())) co_return fail(std::move(heard).error());
      if (heard) PF_CO_CHECK_OK(expect_success(*heard, "check " + order.domain));
      told = heard.has_value();
    }
    PF_CO_TRY(const net::HttpResponse shown, co_await look(order.authorization_url, pause_ms, until));
    PF_CO_CHECK_OK(expect_success(shown, "show how far the check of " + order.domain + " is"));
    PF_CO_TRY(const AcmeAuthorization authorization, read_authorization(shown.body));
    if (authorization.status == "valid") co_return Result<void>();
    if (authorization.status != "pending") co_return proof_refused(authorization);
    PF_CO_CHECK_OK(co_await rest(pause_ms, retry_after_s(shown), until));
  }
}

// Does what the order's state asks for until there is a certificate; returns its URL.
asio::awaitable<Result<std::string>> AcmeClient::Impl::issue(const AcmeOrder& order, const std::string& payload, int64_t until) {
  int64_t pause_ms = first_pause_ms();
  for (;;) {
    PF_CO_TRY(const net::HttpResponse shown, co_await look(order.url, pause_ms, until));
    PF_CO_CHECK_OK(expect_success(shown, "show the order for " + order.domain));
    PF_CO_TRY(AcmeOrderState state, read_order(shown.body));
    int asked_s = retry_after_s(shown);
    if (state.status == "ready") {
      auto taken = co_await post(order.finalize_url, payload, true, until);
      if (!taken && !is_passing(taken.error())) co_return fail(std::move(taken).error());
      // It may not have heard us, or not believe its own order yet: the next look tells.
      const bool unheard = !taken || (taken->status >= 400 && read_problem(taken->status, taken->body).is("orderNotReady"));
      if (!unheard) {
        PF_CO_CHECK_OK(expect_success(*taken, "make the certificate for " + order.domain));
        PF_CO_TRY(state, read_order(taken->body));
        asked_s = retry_after_s(*taken);
      }
    }
    if (state.status == "invalid") co_return order_refused(state, order.domain);
    if (state.status == "valid") {
      if (state.certificate_url.empty()) co_return unclear_answer("the order is done but names no certificate");
      co_return std::move(state.certificate_url);
    }
    PF_CO_CHECK_OK(co_await rest(pause_ms, asked_s, until));
  }
}

AcmeClient::AcmeClient(AcmeOptions options, P256PrivateKey account_key, std::string account_url)
    : impl_(std::make_shared<Impl>(std::move(options), std::move(account_key), std::move(account_url))) {}
AcmeClient::~AcmeClient() = default;

const std::string& AcmeClient::account_url() const {
  return impl_->account_url;
}

asio::awaitable<Result<AcmeOrder>> AcmeClient::begin(std::vector<std::string> domains, int64_t timeout_ms) {
  const auto impl = impl_;
  co_return co_await impl->make_order(domains, now_ms() + timeout_ms);
}

asio::awaitable<Result<std::string>> AcmeClient::finish(AcmeOrder order, std::string csr_der, int64_t timeout_ms) {
  const auto impl = impl_;
  const int64_t until = now_ms() + timeout_ms;
  const std::string payload = finalize_payload(csr_der);
  PF_CO_CHECK_OK(impl->open());
  if (impl->directory.new_order.empty()) PF_CO_CHECK_OK(co_await impl->load_directory(until));
  if (!order.key_authorization.empty()) PF_CO_CHECK_OK(co_await impl->prove(order, until));
  PF_CO_TRY(const std::string url, co_await impl->issue(order, payload, until));
  int64_t pause_ms = impl->first_pause_ms();
  PF_CO_TRY(net::HttpResponse answer, co_await impl->look(url, pause_ms, until));
  PF_CO_CHECK_OK(expect_success(answer, "hand out the certificate for " + order.domain));
  PF_CO_CHECK_OK(check_chain(answer.body));
  co_return std::move(answer.body);
}

asio::awaitable<Result<std::optional<RenewalWindow>>> AcmeClient::renewal_window(std::string chain_pem, int64_t timeout_ms) {
  const auto impl = impl_;
  const int64_t until = now_ms() + timeout_ms;
  PF_CO_TRY(const CertificateInfo info, inspect_certificate(chain_pem));
  PF_CO_CHECK_OK(impl->open());
  if (impl->directory.new_order.empty()) PF_CO_CHECK_OK(co_await impl->load_directory(until));
  std::string url = impl->directory.renewal_info;
  const std::string id = renewal_id(info);
  std::optional<RenewalWindow> out;
  if (url.empty() || id.empty()) co_return out;
  url += (url.ends_with('/') ? "" : "/") + id;
  PF_CO_TRY(const net::HttpResponse answer, co_await impl->call("GET", url, std::string(), until));
  PF_CO_CHECK_OK(expect_success(answer, "say when to renew"));
  PF_CO_TRY(out, read_renewal_window(answer.body));
  out->retry_after_s = retry_after_s(answer);
  co_return out;
}

int64_t renewal_time_ms(const CertificateInfo& info, const std::optional<RenewalWindow>& window, uint32_t jitter) {
  const int64_t life_ms = std::max<int64_t>(info.not_after_ms - info.not_before_ms, 0);
  const double share = static_cast<double>(jitter) / 4'294'967'296.0;
  const auto part_of = [&](int64_t whole_ms) { return static_cast<int64_t>(static_cast<double>(whole_ms) * share); };
  const int64_t wished_ms = window ? window->start_ms + part_of(window->end_ms - window->start_ms)
                                   : info.not_before_ms + life_ms / 3 * 2 - part_of(life_ms / 50);
  return std::min(wished_ms, info.not_after_ms - life_ms / 10);
}

}  // namespace pocketfleet::tunnel
