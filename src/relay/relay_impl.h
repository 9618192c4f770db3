// What the parts of a relay share. Internal to relay/. Lives until the last coroutine that holds it has ended.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "crypto/p256.h"
#include "net/http_server.h"
#include "net/tls.h"
#include "relay/listener.h"
#include "relay/metrics.h"
#include "relay/relay.h"
#include "tunnel/certificate_keeper.h"
#include "tunnel/quic_link.h"

namespace pocketfleet::relay {

struct Worker {
  asio::io_context context{1};
  std::shared_ptr<Listener> users, agents;
  std::thread thread;
};

// What agents see, in PEM; the chain is empty when none has been ordered yet.
struct OwnCertificate {
  OwnCertificate() = default;
  std::string chain_pem, key_pem;
};

struct Relay::Impl : std::enable_shared_from_this<Relay::Impl> {
  explicit Impl(RelayOptions the_options)
      : options(std::move(the_options)),
        suffixes(options.suffixes),
        registry(options.registry),
        user_sources(options.user_sources),
        agent_sources(options.agent_sources) {}

  const RelayOptions options;
  std::mutex mutex;  // of the next three
  std::vector<std::string> suffixes;
  std::shared_ptr<net::TlsContext> tls;        // empty until there is a certificate
  std::shared_ptr<net::TlsContext> challenge;  // while an authority checks our name
  Registry registry;
  Sources user_sources, agent_sources;
  RelayMetrics metrics;
  std::vector<std::unique_ptr<Worker>> workers;
  std::unique_ptr<net::HttpServer> admin;
  std::shared_ptr<tunnel::QuicListener> quic;         // on the first worker; empty until there is a certificate
  std::optional<P256PrivateKey> key;                  // of a certificate that is ordered
  std::shared_ptr<tunnel::CertificateKeeper> keeper;  // on the first worker; empty for a certificate from files
  uint16_t public_port = 0, agent_port = 0;
  int admin_port = -1;
  size_t most_users = 0;
  std::atomic<size_t> users{0};
  std::atomic<size_t> joins{0};
  std::atomic<bool> draining{false};

  std::shared_ptr<net::TlsContext> current_tls() {
    const std::lock_guard lock(mutex);
    return tls;
  }
  // Of our own name only.
  std::shared_ptr<net::TlsContext> current_challenge(const std::string& name) {
    const std::lock_guard lock(mutex);
    return name == options.name ? challenge : nullptr;
  }
  std::vector<std::string> current_suffixes() {
    const std::lock_guard lock(mutex);
    return suffixes;
  }

  // user_side.cpp
  void take_user(asio::ip::tcp::socket socket, std::string address, std::string peer);
  // agent_side.cpp
  void take_agent(asio::ip::tcp::socket socket, std::string address, std::string peer);
  asio::awaitable<void> serve_link(std::shared_ptr<tunnel::RelayLink> link);
  // relay_certificate.cpp
  bool orders_certificate() const { return options.certificate_chain_file.empty(); }
  // The next two before the threads start.
  Result<OwnCertificate> load_certificate();
  void keep_certificate();
  Result<void> reload_certificate();
  Result<void> open_quic(const OwnCertificate& own);
  Result<void> take_chain(const std::string& chain_pem);
  void set_challenge(std::shared_ptr<net::TlsContext> shown);
  // Whether the authority has seen it.
  asio::awaitable<bool> answer_challenge(std::unique_ptr<net::Stream> stream, std::shared_ptr<net::TlsContext> shown);
};

}  // namespace pocketfleet::relay
