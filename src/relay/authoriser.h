// Asks a service of the operator's whether an agent may serve an address: POST with the claim as JSON; 200 lets it in, 403
// refuses it. When the answer names a source, the suffix's TXT records must allow that source (docs/relay.md). Called on any
// worker; no state. Errors of the hook: kPermissionDenied when the agent is refused, kUnavailable when nobody could be asked: it
// may come again.
#pragma once

#include <functional>
#include <string>

#include "relay/relay.h"

namespace pocketfleet::relay {

struct AuthoriserOptions {
  std::string url;         // http://, https:// or unix:
  std::string nameserver;  // for TXT records; empty: those of the system
  int64_t timeout_ms = 5'000;
};

// kInvalidArgument for a URL that cannot be asked.
Result<std::function<asio::awaitable<Result<void>>(AgentClaim claim)>> make_authoriser(AuthoriserOptions options);

}  // namespace pocketfleet::relay
