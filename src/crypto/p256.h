// Signatures with keys on the curve P-256: ECDSA with SHA-256 (FIPS 186-5), as r and s of 32 bytes each, which is also what
// WebCrypto makes. Keys are held by OpenSSL; values may be copied and used from any thread. Errors: kInvalidArgument for bytes
// that are no key, kIo for files, kInternal when OpenSSL fails.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

struct evp_pkey_st;

namespace pocketfleet {

class P256PublicKey {
 public:
  // 33 bytes: a point on the curve, compressed (SEC 1, 2.3.3).
  static Result<P256PublicKey> from_compressed(std::string_view bytes);
  std::string compressed() const;
  // False for anything that is not a signature of these bytes by this key.
  bool verify(std::string_view bytes, std::string_view signature) const;
  // Borrowed, for what OpenSSL does with keys elsewhere: lives as long as this object or a copy of it.
  evp_pkey_st* native() const { return key_.get(); }

 private:
  friend class P256PrivateKey;
  explicit P256PublicKey(std::shared_ptr<evp_pkey_st> key) : key_(std::move(key)) {}
  std::shared_ptr<evp_pkey_st> key_;
};

class P256PrivateKey {
 public:
  static Result<P256PrivateKey> generate();
  // PKCS #8 in PEM, without a password.
  static Result<P256PrivateKey> from_pem(std::string_view pem);
  Result<std::string> to_pem() const;
  P256PublicKey public_key() const { return P256PublicKey(key_); }
  // 64 bytes.
  Result<std::string> sign(std::string_view bytes) const;
  // Borrowed, as above.
  evp_pkey_st* native() const { return key_.get(); }

 private:
  explicit P256PrivateKey(std::shared_ptr<evp_pkey_st> key) : key_(std::move(key)) {}
  std::shared_ptr<evp_pkey_st> key_;
};

// The key in a file; made there, readable by its owner alone, when there is no such file.
Result<P256PrivateKey> load_or_make_key(const std::string& path);

}  // namespace pocketfleet
