// The tunnel over QUIC (RFC 9000; docs/formats/tunnel.md): a listener that makes a RelayLink of each agent that comes, and
// dial_quic() for the agent's end. Both ends show certificates: the relay takes any from an agent, but its key is proven; the
// agent checks the relay's. Agents that know what we add offer the ALPN "pocketfleet/1". Old ones offer none, and old relays
// refuse it: dial_quic() then fails with kUnsupportedParameter, and options.legacy is what is left. A link survives a change of
// the agent's address. All of a listener, and all of a link, runs on one executor. Errors as in tunnel/link.h; kInvalidArgument
// for certificates and hosts, kUnavailable without a way to the relay, kUnsupportedParameter where the program was built without
// QUIC.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tunnel/link.h"

namespace pocketfleet::tunnel {

bool quic_available();

struct QuicServerOptions {
  QuicServerOptions() = default;
  std::string certificate_chain_pem;
  std::string private_key_pem;
  bool accept_legacy = false;  // agents without our ALPN too; their proofs are not bound to the connection
  int64_t idle_timeout_ms = 30'000;
  int64_t keep_alive_ms = 10'000;
  size_t most_connections = 20'000;
  size_t most_connections_per_ip = 0;  // 0: as many as there are; IPv6 counts by networks of 64 bits
};

class QuicListener {
 public:
  using OnLink = std::function<void(std::shared_ptr<RelayLink>)>;

  // `host` is an address, or empty for all of them. `on_link` is called once the handshake with an agent is done; from then on
  // the link lives as long as it is held.
  static Result<std::shared_ptr<QuicListener>> open(asio::any_io_executor executor, const std::string& host, uint16_t port,
                                                    QuicServerOptions options, OnLink on_link);
  ~QuicListener();
  QuicListener(const QuicListener&) = delete;
  QuicListener& operator=(const QuicListener&) = delete;

  uint16_t port() const;
  // Those whose handshake is not done count too.
  size_t connections() const;
  // For agents that come from now on.
  Result<void> set_certificate(const std::string& certificate_chain_pem, const std::string& private_key_pem);
  // Ends all links.
  void close();

  struct Impl;
  explicit QuicListener(std::shared_ptr<Impl> impl);

 private:
  std::shared_ptr<Impl> impl_;
};

struct QuicDialOptions {
  QuicDialOptions() = default;
  std::string certificate_chain_pem;  // both must be there
  std::string private_key_pem;
  std::string trusted_file;  // PEM of authorities; empty: those of the system
  bool verify = true;        // false: any certificate of a relay is good
  bool legacy = false;       // speak as old agents do
  int64_t idle_timeout_ms = 30'000;
  int64_t keep_alive_ms = 10'000;
};

// Tries the host's addresses one after the other; timeout_ms is for all. The relay's certificate must be for `server_name`, which
// is a name or an address; empty: the host. The link runs on the coroutine's executor.
asio::awaitable<Result<std::shared_ptr<AgentLink>>> dial_quic(std::string host, uint16_t port, std::string server_name,
                                                              QuicDialOptions options, int64_t timeout_ms);

// Goes on from a new socket at once. Links do so by themselves when they find that the machine's address has changed.
void migrate_quic(AgentLink& link);

}  // namespace pocketfleet::tunnel
