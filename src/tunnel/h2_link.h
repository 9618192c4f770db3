// The tunnel over HTTP/2 (docs/formats/tunnel.md): links over a TLS connection that has been made. The agent has dialled and is
// the HTTP/2 server, the relay is the client; neither needs ALPN. Errors and threads as in tunnel/link.h.
#pragma once

#include <memory>

#include "net/tls.h"
#include "tunnel/h2_session.h"
#include "tunnel/link.h"

namespace pocketfleet::tunnel {

// What binds a proof to its connection: the label of the TLS exporter.
inline constexpr std::string_view kBindingLabel = "EXPORTER-pocketfleet-tunnel";

// kProtocol when the connection cannot be bound to.
Result<std::shared_ptr<RelayLink>> make_h2_relay_link(std::unique_ptr<net::TlsStream> transport, H2Options options);
Result<std::shared_ptr<AgentLink>> make_h2_agent_link(std::unique_ptr<net::TlsStream> transport, H2Options options);

}  // namespace pocketfleet::tunnel
