// Signatures that tell the key they were made with: ECDSA on P-256 as r, s and v, of 32, 32 and 1 bytes; v is the parity of the
// nonce's point (SEC 1, 4.1.6). The nonce follows from the key and the digest (RFC 6979), and s lies in the lower half of its
// range: a key has one signature for a digest. Pure functions; any thread. Errors: kInvalidArgument for bytes that are no
// signature, kInternal when OpenSSL fails.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "crypto/digest.h"
#include "crypto/p256.h"

namespace pocketfleet {

inline constexpr size_t kRecoverableBytes = 65;

Result<std::string> sign_recoverable(const P256PrivateKey& key, const Sha256& digest);

// The only key that this signature of this digest can be from. Half of all numbers recover to some key: compare it with the one
// that is expected.
Result<P256PublicKey> recover_key(const Sha256& digest, std::string_view signature);

}  // namespace pocketfleet
