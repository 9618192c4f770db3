// The agent's side of a tunnel: keeps links to the relays for ever, gets and renews the certificate, opens the TLS of users and
// carries their bytes to a local server. It never gives up: what fails is tried again, later each time, and status() tells the
// truth meanwhile. Everything runs on the executor of start(), a context with one thread; status() may be read from any thread.
// Keys and certificates lie in a folder that only its owner can read.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "tunnel/acme.h"
#include "tunnel/pace.h"

namespace pocketfleet::tunnel {

namespace asio = boost::asio;

struct RelayAddress {
  std::string host;
  uint16_t port = 4433;
};
// "relay.example", "relay.example:4433", "[2001:db8::1]:4433".
Result<RelayAddress> parse_relay_address(std::string_view text);

struct TunnelOptions {
  std::vector<RelayAddress> relays;
  std::string suffix;            // the address is <id>.<suffix>
  std::string target;            // "127.0.0.1:8080", "localhost:8080" or "unix:/path"
  std::string state_folder;      // made when it is not there
  uint16_t public_port = 443;    // of the relays, where users come
  std::string relay_ca_file;     // authorities that relays are checked against; empty: the system's
  bool accept_legacy = false;    // relays that cannot bind a proof to the connection, and could replay it elsewhere
  std::string carrier = "auto";  // quic, h2, or auto: QUIC where it gets through, HTTP/2 meanwhile
  size_t links_per_relay = 2;
  std::string extension;  // carried in the agent's certificate, for whoever authorises it

  // Where the certificate of the address comes from: the first that is set.
  std::string certificate_chain_file, private_key_file;
  bool self_signed = false;  // clients must be told to trust it
  AcmeOptions acme;

  PaceLimits pace;
  int64_t connect_timeout_ms = 10'000;
  int64_t handshake_timeout_ms = 10'000;  // of users
  int64_t user_idle_ms = 3'600'000;
  int64_t quic_timeout_ms = 3'000;  // until HTTP/2 is taken instead
  int64_t quic_retry_ms = 300'000;  // how often a link over HTTP/2 looks whether QUIC gets through now
  int64_t keep_alive_ms = 10'000;
  int64_t link_idle_ms = 30'000;
  size_t most_users = 1'000;
  bool send_proxy = false;  // tell the local server who calls, with a PROXY header, where the relay says so
};

enum class TunnelState {
  kConnecting,  // not there yet, and nothing has failed
  kReady,       // users get through
  kFailing,     // they do not; last_error says why, next_try_ms when that may change
};

struct TunnelStatus {
  TunnelState state = TunnelState::kConnecting;
  std::string url;
  size_t links = 0;         // that take users
  std::string carrier;      // of the newest of them
  std::string last_error;   // of the last that failed; empty when nothing has since it was last ready
  int64_t next_try_ms = 0;  // wall time of the next try, 0: none is waiting
  int64_t certificate_until_ms = 0;
  uint64_t users = 0;  // carried since the start
};
std::string_view state_name(TunnelState state);

class Tunnel {
 public:
  // Reads or makes the keys. kInvalidArgument and kIo name what is wrong.
  static Result<std::shared_ptr<Tunnel>> make(TunnelOptions options);
  ~Tunnel();
  Tunnel(const Tunnel&) = delete;
  Tunnel& operator=(const Tunnel&) = delete;

  const std::string& domain() const;
  // `on_change` is called on the executor after each change of the status.
  void start(const asio::any_io_executor& executor, std::function<void(const TunnelStatus&)> on_change);
  // Closes links and users; nothing is tried again. On the executor.
  void stop();
  TunnelStatus status() const;

  struct Impl;

 private:
  explicit Tunnel(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace pocketfleet::tunnel
