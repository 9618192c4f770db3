// Who an agent is. Its id comes from its key: the first 8 bytes of SHA-256 over the 33 bytes of the compressed P-256 key, in
// hexadecimal; its domain is "<id>.<suffix>". A proof of 65 bytes (crypto/recoverable.h) shows that an agent holds the key of its
// domain: over the domain alone, as the public relays want it, or over the domain and the connection. Pure functions; any thread.
// Errors: kInvalidArgument for what is no domain or no binding, kPermissionDenied for a proof that does not hold, kInternal.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "crypto/p256.h"

namespace pocketfleet::tunnel {

inline constexpr size_t kIdLetters = 16;
inline constexpr size_t kBindingBytes = 32;

std::string client_id(const P256PublicKey& key);

// The id and the suffix of a domain: 16 hexadecimal digits in lower case, a dot, and a name of DNS in lower case.
Result<std::pair<std::string, std::string>> split_domain(std::string_view domain);
// Whether the suffix is one of these; an empty list takes any. False for what is no domain.
bool suffix_allowed(std::string_view domain, const std::vector<std::string>& suffixes);

// Holds for this domain for ever, at every relay: whoever has seen it can show it again.
Result<std::string> prove_domain(const P256PrivateKey& key, std::string_view domain);
// Holds on one connection only. `binding`: 32 bytes that only this connection has (LinkFacts::binding).
Result<std::string> prove_binding(const P256PrivateKey& key, std::string_view domain, std::string_view binding);
// The key of the domain, when the proof is by it; with a binding, of the second kind, without, of the first.
Result<P256PublicKey> check_proof(std::string_view domain, std::string_view proof, std::optional<std::string_view> binding);

// TXT records at "_acu.<host>" say whose agents may use a suffix. What such a string is for one source, and for everybody.
std::string txt_value(std::string_view source, std::string_view host);
std::string txt_open_value(std::string_view host);
// The strings are taken one by one, never joined. The one for everybody counts only when it stands alone.
bool txt_authorises(const std::vector<std::string>& txt_strings, std::string_view source, std::string_view host);

}  // namespace pocketfleet::tunnel
