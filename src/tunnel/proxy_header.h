// The header of the PROXY protocol, version 2 (haproxy.org, proxy-protocol.txt, 2.2): who called, before the first byte of a
// connection. Made for TCP over IPv4 and IPv6; read incrementally and strictly, at most kMostProxyHeaderBytes. It begins with a
// byte that no TLS record begins with, so a reader can tell whether there is one. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pocketfleet::tunnel {

inline constexpr size_t kMostProxyHeaderBytes = 536;

struct ProxyAddress {
  std::string host;  // an address, without brackets; empty: the sender does not say
  uint16_t port = 0;
  bool operator==(const ProxyAddress&) const = default;
};

// "192.0.2.7:4711" or "[2001:db8::7]:4711", as streams call their peers; empty where it is neither.
ProxyAddress proxy_address_of(std::string_view peer);

// `to` may be of the other family or unknown; then it is written as the unspecified address.
std::string make_proxy_header(const ProxyAddress& from, const ProxyAddress& to);

// True when bytes that begin like this may be such a header.
inline bool begins_proxy_header(char first) {
  return first == '\r';
}

struct ProxyHeader {
  ProxyAddress from;
  size_t size = 0;  // of the header; 0: more bytes are needed
};
// kProtocol for what is no header.
Result<ProxyHeader> read_proxy_header(std::string_view bytes);

}  // namespace pocketfleet::tunnel
