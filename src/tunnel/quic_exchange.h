// What agent and relay say to each other over a QUIC connection (docs/formats/tunnel.md), without QUIC itself: links over a
// QuicCarrier. A connection is extended when both ends know what we add to the protocol; then the control stream stays open, the
// proof is bound to the connection, and the relay says "ready" and "retire". Errors and threads as in tunnel/link.h.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "tunnel/link.h"

namespace pocketfleet::tunnel {

// One QUIC connection whose handshake is done. It ends with an Error that everybody gets.
class QuicCarrier {
 public:
  virtual ~QuicCarrier() = default;
  virtual const LinkFacts& facts() const = 0;
  virtual asio::any_io_executor executor() const = 0;
  virtual bool extended() const = 0;
  virtual const std::optional<Error>& error() const = 0;

  // Waits while the peer allows no more streams. The agent opens the control stream, the relay all others.
  virtual asio::awaitable<Result<std::unique_ptr<net::Stream>>> open_stream(int64_t timeout_ms) = 0;
  // The next stream that the peer has opened.
  virtual asio::awaitable<Result<IncomingStream>> next_stream(int64_t timeout_ms) = 0;
  // What streams are that come from now on.
  virtual void mark_arrivals(StreamKind kind) = 0;
  // Without the control stream.
  virtual size_t open_streams() const = 0;

  virtual asio::awaitable<bool> probe(int64_t timeout_ms) = 0;
  // Ends once no stream is open and everything on the control stream has arrived.
  virtual void end_with_last_stream() = 0;
  virtual void close(const std::string& reason, bool refused) = 0;
  virtual asio::awaitable<Error> wait_ended() = 0;
  // Agents: goes on from a new socket.
  virtual void migrate() = 0;
};

std::shared_ptr<RelayLink> make_quic_relay_link(std::shared_ptr<QuicCarrier> carrier);
std::shared_ptr<AgentLink> make_quic_agent_link(std::shared_ptr<QuicCarrier> carrier);

}  // namespace pocketfleet::tunnel
