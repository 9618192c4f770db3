// One session between an agent and a relay, whatever carries it (HTTP/2 over TLS, or QUIC). The agent dials; the relay opens
// streams towards it, one for each connection of a user. RelayLink is the relay's end, AgentLink the agent's. Everything runs on
// one executor, a strand or a context with one thread; streams come from the link and live on after it only to fail.
// Deadlines are in milliseconds. Errors: kConnectionClosed, kProtocol, kPermissionDenied (refused, with the reason),
// kDeadlineExceeded.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "net/stream.h"

namespace pocketfleet::tunnel {

namespace asio = boost::asio;

// What an item of the control exchange may hold; a peer that sends more breaks the protocol.
inline constexpr size_t kMostItemBytes = 64u << 10;

// A relay's reason for ending the link of an agent that shows a challenge while another one of the same address does.
inline constexpr std::string_view kOrderedElsewhere = "another agent of this address is getting its certificate";

enum class StreamKind {
  kUser,       // TLS of somebody who calls the address
  kChallenge,  // a certificate authority that checks the address (ALPN acme-tls/1)
};

struct IncomingStream {
  StreamKind kind = StreamKind::kUser;
  std::unique_ptr<net::Stream> stream;
};

struct LinkFacts {
  std::string carrier;           // "h2" or "quic"
  std::string peer;              // "192.0.2.7:4711"
  std::string binding;           // 32 bytes that only this connection has (RFC 8446, 7.5), the same at both ends
  std::string peer_certificate;  // DER, at the relay's end; empty at the agent's
};

// What an agent says of itself.
struct AgentHello {
  std::string domain;    // "<id>.<suffix>"
  std::string proof;     // 65 bytes, see tunnel/identity.h
  bool bound = false;    // the proof covers the connection's binding, not the domain alone
  std::string key_auth;  // of a TLS-ALPN-01 challenge that it waits for; empty when it has its certificate
};

class RelayLink {
 public:
  virtual ~RelayLink() = default;
  virtual const LinkFacts& facts() const = 0;
  virtual asio::any_io_executor executor() const = 0;

  virtual asio::awaitable<Result<AgentHello>> receive_hello(int64_t timeout_ms) = 0;
  // With a key_auth: challenge streams may be opened from now on.
  virtual asio::awaitable<Result<void>> begin_challenge(int64_t timeout_ms) = 0;
  // Until the agent has its certificate.
  virtual asio::awaitable<Result<void>> wait_challenge_done(int64_t timeout_ms) = 0;
  // Tells an agent that can hear it that users are sent to it from now on.
  virtual asio::awaitable<Result<void>> confirm(int64_t timeout_ms) = 0;
  // The stream knows half-close.
  virtual asio::awaitable<Result<std::unique_ptr<net::Stream>>> open(StreamKind kind, int64_t timeout_ms) = 0;

  virtual size_t open_streams() const = 0;
  // Asks for a sign of life; false when none came in time. One at a time.
  virtual asio::awaitable<bool> probe(int64_t) { co_return true; }
  // Opens nothing more and tells the agent to dial anew; streams that are open go on. The link ends with the last of them.
  virtual void retire() = 0;
  // Ends it at once. `refused`: the agent shall not come again like this.
  virtual void close(const std::string& reason, bool refused) = 0;
  // Returns when the link has ended, with the reason.
  virtual asio::awaitable<Error> wait_closed() = 0;
};

class AgentLink {
 public:
  virtual ~AgentLink() = default;
  virtual const LinkFacts& facts() const = 0;
  virtual asio::any_io_executor executor() const = 0;

  struct Introduction {
    std::string domain;
    std::string key_auth;
    // The proof, 65 bytes: over the binding where the relay knows how (`bound`), else over the domain alone.
    std::function<Result<std::string>(bool bound)> prove;
  };
  // Says who we are. Returns when users are (or, with a relay that does not confirm, ought to be) sent here; with a key_auth,
  // when challenge streams may come. kPermissionDenied with the relay's reason when it refuses.
  virtual asio::awaitable<Result<void>> introduce(Introduction introduction, int64_t timeout_ms) = 0;
  // After introduce() with a key_auth: the certificate is there. Returns as introduce() does without one.
  virtual asio::awaitable<Result<void>> challenge_done(int64_t timeout_ms) = 0;
  // The next stream that the relay opens. An error means that the link has ended.
  virtual asio::awaitable<Result<IncomingStream>> accept() = 0;
  // True once the relay has said that it goes: dial another session; this one ends with its last stream.
  virtual bool retiring() const = 0;
  virtual size_t open_streams() const = 0;
  virtual void close() = 0;
};

}  // namespace pocketfleet::tunnel
