// Where the relay's own certificate comes from: out of files, or from an authority, which looks for the proof at the public port.
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>

#include "base/clock.h"
#include "base/files.h"
#include "base/folders.h"
#include "base/log.h"
#include "crypto/certificate.h"
#include "relay/relay_impl.h"
#include "tunnel/certificate_store.h"

namespace pocketfleet::relay {

namespace {

constexpr size_t kMostPemBytes = 1u << 20;
constexpr int64_t kFarewellMs = 1'000;

Result<std::shared_ptr<net::TlsContext>> make_tls(const RelayOptions& options, const OwnCertificate& certificate) {
  net::TlsOptions tls;
  tls.certificate_chain_pem = certificate.chain_pem;
  tls.private_key_pem = certificate.key_pem;
  // Errors name these.
  tls.certificate_chain_file = options.certificate_chain_file;
  tls.private_key_file = options.private_key_file;
  tls.client_certificate = net::TlsOptions::ClientCertificate::kAny;
  return net::TlsContext::server(tls);
}

Result<OwnCertificate> read_files(const RelayOptions& options) {
  OwnCertificate out;
  PF_TRY(out.chain_pem, read_file(options.certificate_chain_file, kMostPemBytes));
  PF_TRY(out.key_pem, read_file(options.private_key_file, kMostPemBytes));
  return out;
}

}  // namespace

Result<OwnCertificate> Relay::Impl::load_certificate() {
  OwnCertificate own;
  if (!orders_certificate()) {
    PF_TRY(own, read_files(options));
    PF_TRY(tls, make_tls(options, own));
    return own;
  }
  if (options.name.empty()) {
    return fail(ErrorCode::kInvalidArgument, "a relay needs a certificate, or its host name to order one for");
  }
  if (!is_dns_name(options.name)) {
    return fail(ErrorCode::kInvalidArgument,
                "\"" + options.name + "\" is no host name in lower case, so no certificate can be ordered for it", "name");
  }
  PF_CHECK_OK(make_private_folder(options.state_folder));
  PF_TRY(key, load_or_make_key(options.state_folder + "/relay.key"));
  PF_TRY(own.key_pem, key->to_pem());
  const tunnel::CertificateStore store(options.state_folder);
  if (auto chain = store.chain(options.name, *key, SystemClock::instance().unix_ms())) {
    own.chain_pem = std::move(*chain);
    PF_TRY(tls, make_tls(options, own));
  } else if (!options.acme.agree) {
    return fail(ErrorCode::kInvalidArgument,
                "a certificate is ordered at " + options.acme.directory_url +
                    " only when you agree to its terms of service: say --agree-terms, or bring one with --certificate and --key");
  }
  return own;
}

Result<void> Relay::Impl::reload_certificate() {
  PF_TRY(OwnCertificate own, read_files(options));
  PF_TRY(auto made, make_tls(options, own));
  if (quic) {
    asio::post(workers.front()->context, [own = std::move(own), listener = quic] {
      const auto set = listener->set_certificate(own.chain_pem, own.key_pem);
      if (!set) log_error("reload_failed", {{"reason", set.error().message}});
    });
  }
  const std::lock_guard lock(mutex);
  tls = std::move(made);
  return {};
}

Result<void> Relay::Impl::open_quic(const OwnCertificate& own) {
  if (!options.quic || !tunnel::quic_available()) return {};
  const auto executor = workers.front()->context.get_executor();
  tunnel::QuicServerOptions settings;
  settings.certificate_chain_pem = own.chain_pem;
  settings.private_key_pem = own.key_pem;
  settings.accept_legacy = options.accept_legacy;
  settings.idle_timeout_ms = options.link_idle_ms;
  settings.keep_alive_ms = options.keep_alive_ms;
  settings.most_connections_per_ip = options.agent_sources.most_open;
  PF_TRY(quic, tunnel::QuicListener::open(executor, options.host, agent_port, std::move(settings),
                                          [this, executor](std::shared_ptr<tunnel::RelayLink> link) {
                                            asio::co_spawn(executor, serve_link(std::move(link)), asio::detached);
                                          }));
  return {};
}

Result<void> Relay::Impl::take_chain(const std::string& chain_pem) {
  OwnCertificate own;
  own.chain_pem = chain_pem;
  PF_TRY(own.key_pem, key->to_pem());
  PF_TRY(auto made, make_tls(options, own));
  if (quic) {
    PF_CHECK_OK(quic->set_certificate(own.chain_pem, own.key_pem));
  } else if (const auto opened = open_quic(own); !opened) {
    // Another order would not help, and agents fall back to HTTP/2.
    log_error("quic_failed", {{"reason", opened.error().message}});
  }
  const std::lock_guard lock(mutex);
  tls = std::move(made);
  return {};
}

void Relay::Impl::set_challenge(std::shared_ptr<net::TlsContext> shown) {
  const std::lock_guard lock(mutex);
  challenge = std::move(shown);
}

void Relay::Impl::keep_certificate() {
  if (!orders_certificate()) return;
  const auto executor = workers.front()->context.get_executor();
  // The relay outlives its event loops, and so the keeper.
  tunnel::CertificateHooks hooks;
  hooks.present = [this](std::shared_ptr<net::TlsContext> shown, std::string) -> asio::awaitable<Result<void>> {
    set_challenge(std::move(shown));
    co_return Result<void>();
  };
  hooks.withdraw = [this](bool) -> asio::awaitable<void> {
    set_challenge(nullptr);
    co_return;
  };
  hooks.on_chain = [this](const std::string& chain_pem) { return take_chain(chain_pem); };
  hooks.on_failure = [this](const Error& error, int64_t again_ms) {
    log_warn("certificate_failed",
             {{"domain", options.name}, {"reason", error.message}, {"next_try_s", static_cast<double>(again_ms) / 1000.0}});
  };
  keeper = std::make_shared<tunnel::CertificateKeeper>(executor, options.acme, tunnel::CertificateStore(options.state_folder),
                                                       options.name, *key, std::move(hooks));
  asio::co_spawn(
      executor, [keeper = keeper]() -> asio::awaitable<void> { co_await keeper->run(); }, asio::detached);
}

asio::awaitable<bool> Relay::Impl::answer_challenge(std::unique_ptr<net::Stream> stream, std::shared_ptr<net::TlsContext> shown) {
  const auto self = shared_from_this();
  auto authority = co_await net::TlsContext::accept(std::move(shown), std::move(stream), options.agent_timeout_ms);
  if (!authority) {
    log_debug("challenge_tls_failed", {{"reason", authority.error().message}});
    co_return false;
  }
  // The handshake is the answer (RFC 8737, section 3).
  co_await (*authority)->shutdown(kFarewellMs);
  co_return true;
}

}  // namespace pocketfleet::relay
