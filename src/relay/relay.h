// The relay: listens for users (TLS, which it does not open) and for agents, and carries bytes between them. It owns its threads:
// one a core, each with its own event loop and its own listening sockets; a link and the users on it live on one of them.
// start(), drain() and stop() are called from one thread. Errors are those of options and of sockets that cannot be had.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "relay/registry.h"
#include "relay/sources.h"
#include "tunnel/acme.h"

namespace pocketfleet::relay {

namespace asio = boost::asio;

// Who wants to serve an address, once that has been proven.
struct AgentClaim {
  std::string domain;        // "<id>.<suffix>"
  std::string identity_key;  // 33 bytes, whose hash the id is
  std::string agent_key;     // of the certificate that was shown, 33 bytes; empty when it is not P-256
  std::string extension;     // of that certificate, opaque; empty for none
  std::string peer;
};

struct RelayOptions {
  std::string host = "0.0.0.0";
  uint16_t public_port = 443;
  uint16_t agent_port = 4433;
  std::string admin_host = "127.0.0.1";
  int admin_port = -1;  // /metrics and /health; 0 takes a free one, -1: none

  std::vector<std::string> suffixes;   // that addresses may have; empty: any
  std::string certificate_chain_file;  // what agents see
  std::string private_key_file;
  // Without those files a certificate is ordered for this host name and kept in the folder, with its key. The authority must find
  // the public port at port 443 of the name. Until the first one is there, agents are turned away.
  std::string name;
  tunnel::AcmeOptions acme;
  std::string state_folder;
  bool accept_legacy = false;   // proofs that are not bound to the connection, which a rogue relay could replay
  bool quic = true;             // agents may come over UDP too, on the same port number, where it was built in
  bool proxy_protocol = false;  // tell agents of ours who calls, before the first byte of each user
  size_t workers = 0;           // 0: one a core

  RegistryLimits registry;
  SourceLimits user_sources;
  SourceLimits agent_sources;
  size_t most_users = 0;              // connections of users at once; 0: what the limit of open files leaves room for
  int64_t hello_timeout_ms = 5'000;   // for the whole ClientHello
  int64_t agent_timeout_ms = 10'000;  // for the TLS handshake and the proof
  int64_t challenge_timeout_ms = 600'000;
  int64_t user_idle_ms = 3'600'000;
  int64_t keep_alive_ms = 10'000;  // of links
  int64_t link_idle_ms = 30'000;

  // Asked for each claim; an error refuses it with its message. Runs on the link's executor. Empty: all are welcome.
  std::function<asio::awaitable<Result<void>>(AgentClaim claim)> authorise;
};

class Relay {
 public:
  explicit Relay(RelayOptions options);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  Result<void> start();
  uint16_t public_port() const;
  uint16_t agent_port() const;
  int admin_port() const;  // -1: none

  // Reads a certificate from files anew and takes other suffixes; what runs goes on. On an error everything stays as it was.
  Result<void> reload(std::vector<std::string> suffixes);
  // Takes nothing new, tells the agents to dial elsewhere and waits until the last user has gone, at most so long.
  void drain(int64_t timeout_ms);
  // At once.
  void stop();

  size_t users() const;

  struct Impl;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace pocketfleet::relay
