// What the parts of a tunnel's agent share. Internal to tunnel/. On the tunnel's executor, but for the status.
#pragma once

#include <mutex>
#include <optional>
#include <set>

#include "crypto/p256.h"
#include "net/signal.h"
#include "net/tls.h"
#include "tunnel/agent.h"
#include "tunnel/certificate_keeper.h"
#include "tunnel/certificate_store.h"
#include "tunnel/link.h"

namespace pocketfleet::tunnel {

uint32_t random_number();

struct Tunnel::Impl : std::enable_shared_from_this<Tunnel::Impl> {
  Impl(TunnelOptions the_options, P256PrivateKey the_identity, CertificateStore the_store)
      : options(std::move(the_options)), identity(std::move(the_identity)), store(std::move(the_store)) {}

  const TunnelOptions options;
  const P256PrivateKey identity;
  CertificateStore store;
  std::string domain;
  std::string agent_chain, agent_key;  // PEM, what relays see
  asio::any_io_executor executor;
  std::function<void(const TunnelStatus&)> on_change;
  bool stopped = false;

  std::shared_ptr<net::TlsContext> relay_tls;  // for dialling
  std::shared_ptr<net::TlsContext> user_tls;   // empty until there is a certificate
  std::vector<std::shared_ptr<net::Signal>> waiting_for_certificate;
  std::unique_ptr<CertificateKeeper> keeper;                // empty where the certificate is not ordered
  std::vector<std::shared_ptr<AgentLink>> challenge_links;  // wait for the authority
  std::set<std::shared_ptr<AgentLink>> links;
  size_t users = 0;

  mutable std::mutex status_mutex;
  TunnelStatus status;

  // agent.cpp
  asio::awaitable<void> keep_link(RelayAddress relay);
  asio::awaitable<Result<std::shared_ptr<AgentLink>>> dial(RelayAddress relay);
  asio::awaitable<Result<std::shared_ptr<AgentLink>>> dial_h2(RelayAddress relay);
  asio::awaitable<Result<std::shared_ptr<AgentLink>>> dial_quic(RelayAddress relay);
  // From the introduction to the end of the link, with the reason; `up` is set once users come.
  asio::awaitable<Error> run_link(std::shared_ptr<AgentLink> link, bool& up);
  struct Slot;
  asio::awaitable<void> seek_quic(RelayAddress relay, std::shared_ptr<Slot> slot);
  AgentLink::Introduction introduction(const AgentLink& link, std::string key_auth) const;
  // Until the link ends; with the reason.
  asio::awaitable<Error> serve(std::shared_ptr<AgentLink> link, std::shared_ptr<net::TlsContext> challenge);
  asio::awaitable<void> pause(int64_t ms);
  void change(const std::function<void(TunnelStatus&)>& what);
  void failed(const Error& error, int64_t next_try_in_ms);
  void count_links(const std::string& carrier);

  // agent_users.cpp
  asio::awaitable<void> serve_user(std::unique_ptr<net::Stream> stream, std::shared_ptr<net::TlsContext> tls);
  asio::awaitable<void> serve_challenge(std::unique_ptr<net::Stream> stream, std::shared_ptr<net::TlsContext> tls);

  // agent_certificate.cpp
  Result<void> load_certificate();
  Result<void> use_certificate(const std::string& chain_pem, const std::string& key_pem);
  void keep_certificate();
  asio::awaitable<std::optional<std::string>> find_chain();
  asio::awaitable<Result<void>> present_challenge(std::shared_ptr<net::TlsContext> challenge, std::string key_authorization);
  asio::awaitable<void> withdraw_challenge(bool certified);
  asio::awaitable<void> hold(std::shared_ptr<AgentLink> link, std::shared_ptr<net::TlsContext> challenge);
};

}  // namespace pocketfleet::tunnel
