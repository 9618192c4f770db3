// What a TlsContext consists of. Internal to net/.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <vector>

#include "net/tls.h"

namespace pocketfleet::net {

struct TlsContext::Impl {
  explicit Impl(SSL_CTX* the_context) : context(the_context, SSL_CTX_free) {}
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context;
  std::vector<unsigned char> alpn;  // as on the wire: length and name, each
};

}  // namespace pocketfleet::net
