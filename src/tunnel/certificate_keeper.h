// Keeps the publicly trusted certificate of one name: orders it at an authority (tunnel/acme.h) when there is none and nobody
// else with the same key has one to pass on, and renews it in time or when the authority asks for it. It never gives up: what
// fails is tried again, later each time, and what the authority refused is remembered over a restart. How the authority's
// connections get an answer is up to the owner's hooks. All on one executor, a strand or a context with one thread. Errors go to
// on_failure.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "crypto/p256.h"
#include "net/signal.h"
#include "net/tls.h"
#include "tunnel/acme.h"
#include "tunnel/certificate_store.h"

namespace pocketfleet::tunnel {

// All but the first are set, and all are called on the executor.
struct CertificateHooks {
  // The chain that others who hold the key and serve the name have, if there is one; asked before each order.
  std::function<asio::awaitable<std::optional<std::string>>()> find;
  // Returns once connections of the authority (ALPN acme-tls/1) will be answered with `challenge`. An error ends this try.
  std::function<asio::awaitable<Result<void>>(std::shared_ptr<net::TlsContext> challenge, std::string key_authorization)> present;
  // The authority does not come any more. Follows each present() that went well.
  std::function<asio::awaitable<void>(bool certified)> withdraw;
  // A new chain is in the store; with an error it counts as not there yet.
  std::function<Result<void>(const std::string& chain_pem)> on_chain;
  std::function<void(const Error& error, int64_t again_ms)> on_failure;
};

class CertificateKeeper {
 public:
  // `key` is that of the certificate. A chain that is in the store already is the owner's to use.
  CertificateKeeper(const asio::any_io_executor& executor, AcmeOptions acme, CertificateStore store, std::string domain,
                    P256PrivateKey key, CertificateHooks hooks);
  CertificateKeeper(const CertificateKeeper&) = delete;
  CertificateKeeper& operator=(const CertificateKeeper&) = delete;

  // Returns some time after stop(). The keeper outlives it.
  asio::awaitable<void> run();
  // Orders nothing more; an order that is on its way ends by itself, and its failure counts for nothing.
  void stop();

 private:
  asio::awaitable<Result<void>> order(AcmeClient& client, const P256PrivateKey& account);
  // True when somebody else had a chain that lasts longer than ours.
  asio::awaitable<bool> take_found();

  const AcmeOptions acme_;
  const CertificateStore store_;
  const std::string domain_;
  const P256PrivateKey key_;
  const CertificateHooks hooks_;
  net::Signal stop_signal_;
  bool stopped_ = false;
};

}  // namespace pocketfleet::tunnel
